"""The commands for the remote store take a copy without records for a whole one, and not for a gap."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.remote.command import _faults
from ottla.cli.remote.restore import _write
from ottla.cli.remote.scrub import Throttle, _faults_of
from ottla.cli.remote.store_access import the_store
from ottla.cli.remote.stored_logs import stored_logs
from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.entries import SegmentEntry
from tests.support.batches import a_batch
from tests.support.logs import a_context, a_log, append, follow
from tests.support.remote_reading import copy_closed_segments, run
from tests.support.remote_stores import a_directory_store

CLUSTER = "cluster"


class Written:
    """Takes the place of a producer."""

    def __init__(self) -> None:
        self.records = 0

    def send(self, record: Any) -> None:
        self.records += 1

    def poll(self, seconds: float) -> None:
        pass

    def flush(self) -> None:
        pass


class Stored:
    """A directory with copies of a log, of which the second has no records."""

    def __init__(self, directory: Path) -> None:
        (directory / "shared").mkdir()
        self.properties = directory / "server.properties"
        keys = {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(directory / "shared")}
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
        log = a_log(a_context(RealFileSystem()), log_dir=str(directory / "log"), segment_index_bytes=1200)
        append(log, a_batch(2), epoch=0)
        log.roll()
        follow(log, a_batch(base_offset=1 << 32, leader_epoch=0), 0)
        log.roll()
        self.entries = run(lambda: self._copy(directory, log))

    async def _copy(self, directory: Path, log: Any) -> list[SegmentEntry]:
        store = a_directory_store(directory / "shared")
        await store.owner(CLUSTER)
        return await copy_closed_segments(log, store)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    stored = Stored(tmp_path)
    assert [bool(entry.size) for entry in stored.entries] == [True, False, True]
    return stored


def test_a_copy_without_records_is_complete(stored: Stored) -> None:
    assert asyncio.run(_faults(stored.properties, CLUSTER, stored.entries)) == []

    async def scrub() -> list[list[str]]:
        async with the_store(stored.properties, CLUSTER) as storage:
            return [await _faults_of(storage, entry, Throttle(None)) for entry in stored.entries]

    assert asyncio.run(scrub()) == [[], [], []]


def test_a_copy_without_records_that_is_missing_is_a_fault(stored: Stored) -> None:
    lost = replace(stored.entries[1], start_offset=7)
    ((found, fault),) = asyncio.run(_faults(stored.properties, CLUSTER, [lost]))
    assert found == lost
    assert "00007-" in fault


@pytest.mark.parametrize("knows_ends", [False, True])
def test_a_copy_without_records_is_no_gap_of_a_log_that_is_restored(stored: Stored, knows_ends: bool) -> None:
    async def restore() -> dict[str, Any]:
        async with the_store(stored.properties) as storage:
            (log,) = await stored_logs(storage, "orders", None, None)
            if knows_ends:
                log = log._replace(copies=stored.entries)
            return await _write(storage, log, Written())  # type: ignore[arg-type]  # no broker is needed

    row = asyncio.run(restore())
    assert (row["records"], row["missing"], row["end"]) == (3, [], (1 << 32) + 1)


def test_a_missing_copy_is_a_gap_of_a_log_that_is_restored(stored: Stored) -> None:
    async def restore() -> dict[str, Any]:
        async with the_store(stored.properties) as storage:
            (log,) = await stored_logs(storage, "orders", None, None)
            log = log._replace(copies=[stored.entries[0], stored.entries[2]])
            return await _write(storage, log, Written())  # type: ignore[arg-type]  # no broker is needed

    assert asyncio.run(restore())["missing"] == [f"offsets 2 to {(1 << 32) - 1} are in no copy"]
