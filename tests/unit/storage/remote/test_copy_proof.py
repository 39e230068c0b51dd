"""The indexes of a whole copy are those that its records prove, and a changed entry of any of them is found."""

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.storage.remote.copy_proof import CopyProof
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.index_checks import check_index
from ottla.storage.remote.ports import IndexKind, RemoteStore, RemoteStoreError
from ottla.storage.remote.record_walk import read_batches, rebuild_indexes
from tests.support.remote_reading import copy_closed_segments, run
from tests.support.remote_stores import a_directory_store, at_once
from tests.unit.storage.remote.test_segment_reader import a_local_log, a_transactional_log

TRANSACTION = struct.Struct(">hqqqq")


async def faults_of(entry: SegmentEntry, store: RemoteStore, changed: Mapping[IndexKind, bytes] | None = None) -> list[str]:
    indexes = {kind: await store.index(entry, kind) for kind in IndexKind} | (changed or {})
    proof = CopyProof(entry, indexes)
    async for batches in read_batches(entry, store, at_once):
        proof.add(batches)
    return proof.faults()


@pytest.mark.parametrize("a_closed_log", [a_local_log, a_transactional_log])
def test_the_copies_of_a_log_are_proved(tmp_path: Path, a_closed_log: object) -> None:
    log = a_closed_log(tmp_path)  # type: ignore[operator]  # one of the two builders
    (tmp_path / "shared").mkdir()
    store = a_directory_store(tmp_path / "shared")

    async def story() -> None:
        entries = await copy_closed_segments(log, store)
        assert entries
        for entry in entries:
            assert await faults_of(entry, store) == []

    run(story)


def test_a_changed_transaction_is_found(tmp_path: Path) -> None:
    log = a_transactional_log(tmp_path)
    (tmp_path / "shared").mkdir()
    store = a_directory_store(tmp_path / "shared")

    async def story() -> None:
        changes = 0
        for entry in await copy_closed_segments(log, store):
            right = await store.index(entry, IndexKind.TRANSACTION)
            for at in range(0, len(right), TRANSACTION.size):
                version, producer, first, last, stable = TRANSACTION.unpack_from(right, at)
                for wrong in ((version, producer + 9, first, last, stable), (version, producer, first, last - 1, stable)):
                    data = right[:at] + TRANSACTION.pack(*wrong) + right[at + TRANSACTION.size :]
                    assert await faults_of(entry, store, {IndexKind.TRANSACTION: data}), wrong
                    changes += 1
                missing = right[:at] + right[at + TRANSACTION.size :]
                assert any("does not have the abort" in each for each in await faults_of(entry, store, {IndexKind.TRANSACTION: missing}))
        assert changes > 4

    run(story)


def test_changed_entries_of_other_indexes_are_found(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    (tmp_path / "shared").mkdir()
    store = a_directory_store(tmp_path / "shared")

    async def story() -> None:
        (entry, *_) = await copy_closed_segments(log, store)
        for kind, step in ((IndexKind.OFFSET, 8), (IndexKind.TIMESTAMP, 12)):
            right = await store.index(entry, kind)
            for at in range(step - 1, len(right), step):  # the last byte of a position, or of an offset
                data = bytearray(right)
                data[at] ^= 0x20
                assert await faults_of(entry, store, {kind: bytes(data)}), (kind, at)
        snapshot = bytearray(await store.index(entry, IndexKind.PRODUCER_SNAPSHOT))
        snapshot[3] ^= 1
        assert await faults_of(entry, store, {IndexKind.PRODUCER_SNAPSHOT: bytes(snapshot)})
        assert await faults_of(entry, store, {IndexKind.LEADER_EPOCH: b"0\n1\n3 0\n"})

    run(story)


def test_indexes_that_are_made_anew_fit_their_records(tmp_path: Path) -> None:
    log = a_local_log(tmp_path, batches=400, segment_bytes=40_000)
    (tmp_path / "shared").mkdir()
    store = a_directory_store(tmp_path / "shared")

    async def story() -> None:
        (entry, *_) = await copy_closed_segments(log, store)
        offset_index, time_index = await rebuild_indexes(entry, store, at_once)
        assert len(offset_index) >= 24
        assert await faults_of(entry, store, {IndexKind.OFFSET: offset_index, IndexKind.TIMESTAMP: time_index}) == []
        assert not check_index(entry, IndexKind.TIMESTAMP, time_index), "nothing but its form can be checked"

    run(story)


def test_a_segment_that_is_longer_than_its_batches_is_no_copy(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    (tmp_path / "shared").mkdir()
    store = a_directory_store(tmp_path / "shared")

    async def story() -> None:
        (entry, *_) = await copy_closed_segments(log, store)
        path = next((tmp_path / "shared").rglob("00000000000000000000-*.log"))
        data = path.read_bytes()
        path.write_bytes(data[:-40] + bytes(40))
        with pytest.raises(RemoteStoreError, match=r"orders-0 at offset 0 is not what was copied"):
            await faults_of(entry, store)

    run(story)
