"""Faults of an ephemeral broker: which requests they hit, and its disk."""

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers.table import handlers_of
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.serving.route import Route
from ottla.config.broker import BrokerConfig
from ottla.ephemeral.disk import DiskFaults, FaultyFileSystem
from ottla.ephemeral.faults import Faults, FaultyEnvironment
from ottla.ephemeral.settings import PREFIX, Ephemeral, remove_abandoned
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.registry import api
from ottla.storage.disk.filesystem import RealFileSystem

FRAME = memoryview(bytearray(b"\0\x0c\0\x04\0\0\0\1\0\2me\0\1\0\0\0\0\1\0\0"))


def route_of(key: ApiKey, version: int) -> Route:
    return Route(api(key), version, *handlers_of(key))


def test_a_fault_hits_as_many_requests_as_it_was_ordered_for() -> None:
    faults = Faults()
    faults.fail(ApiKey.HEARTBEAT, ErrorCode.NOT_COORDINATOR, 2)
    faults.fail(ApiKey.HEARTBEAT, None, 1)
    route = route_of(ApiKey.HEARTBEAT, 4)
    assert faults.answer(FRAME, route_of(ApiKey.METADATA, 4), "me") is None
    answers: list[Any] = [faults.answer(FRAME, route, "me") for _ in range(4)]
    assert [answer if isinstance(answer, bytes) else None for answer in answers[:2]] == [answers[0], answers[0]]
    assert int(ErrorCode.NOT_COORDINATOR).to_bytes(2, "big") in answers[0]
    assert answers[2:] == [CLOSE, None]


def test_a_malformed_request_is_left_to_the_broker() -> None:
    faults = Faults()
    faults.fail(ApiKey.HEARTBEAT, ErrorCode.NOT_COORDINATOR, 1)
    assert faults.answer(FRAME[:-4], route_of(ApiKey.HEARTBEAT, 4), "me") is None


@pytest.mark.parametrize(
    ("key", "client_id", "answer"),
    [
        (ApiKey.FETCH, "broker-2-fetcher-0", CLOSE),
        (ApiKey.FETCH, "broker-1-fetcher-0", None),
        (ApiKey.FETCH, "consumer", None),
        (ApiKey.FETCH, None, None),
        (ApiKey.LEADER_AND_ISR, "2", CLOSE),
        (ApiKey.METADATA, "broker-2", None),
    ],
)
def test_a_cut_hits_the_requests_of_that_broker(key: ApiKey, client_id: str | None, answer: object) -> None:
    faults = Faults()
    faults.cut_off = {2}
    assert faults.answer(FRAME, route_of(key, 4), client_id) is answer
    faults.heal()
    assert faults.answer(FRAME, route_of(key, 4), client_id) is None


def test_a_shifted_clock_changes_the_time_of_day_and_no_duration() -> None:
    faults = Faults()
    clock = FaultyEnvironment(faults).clock

    def ahead_ms() -> float:
        return clock.now_ms() - time.time() * 1000

    faults.clock_shift_ms = -3_600_000
    assert -3_600_000 - 60_000 < ahead_ms() < -3_600_000 + 60_000
    assert abs(clock.monotonic() - time.monotonic()) < 60
    faults.heal()
    assert abs(ahead_ms()) < 60_000


def test_a_full_disk_refuses_writes_and_reads_go_on(tmp_path: Path) -> None:
    faults = DiskFaults()
    disk = FaultyFileSystem(RealFileSystem(), faults)
    file = disk.open(str(tmp_path / "file"), create=True)
    file.write(b"content")
    faults.is_full = True
    for write in (lambda: file.write(b"x"), lambda: file.pwrite(b"x", 0), file.sync):
        with pytest.raises(OSError, match="No space left") as refused:
            write()
        assert refused.value.errno == errno.ENOSPC
    assert file.pread(7, 0) == b"content"
    assert disk.exists(str(tmp_path / "file"))
    faults.heal()
    file.pwrite(b"C", 0)
    assert (tmp_path / "file").read_bytes() == b"Content"


def test_an_unnamed_file_can_be_named(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem(), DiskFaults())
    file = disk.open_unnamed(str(tmp_path))
    assert file is not None
    file.write(b"x")
    disk.link(str(tmp_path / "name"), file)
    assert (tmp_path / "name").read_bytes() == b"x"


def test_what_is_given_wins_over_the_settings_for_tests() -> None:
    ephemeral = Ephemeral({"log.dirs": "/given", "broker.id": "7"})
    assert ephemeral.properties["log.dirs"] == "/given"
    assert ephemeral.properties["broker.id"] == "7"
    config = BrokerConfig(ephemeral.properties)
    assert config.unknown == config.without_effect == []


def test_a_directory_of_its_own_is_removed_and_so_are_those_of_killed_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    abandoned, other = tmp_path / f"{PREFIX}4194305-x", tmp_path / "other"
    for folder in (abandoned, other):
        folder.mkdir()
    ephemeral = Ephemeral({})
    data = Path(ephemeral.properties["log.dirs"])
    assert data.parent.parent == tmp_path
    assert not abandoned.exists()
    remove_abandoned(tmp_path)
    assert data.parent.exists()
    ephemeral.close()
    assert list(tmp_path.iterdir()) == [other]
