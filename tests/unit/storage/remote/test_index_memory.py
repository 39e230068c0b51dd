"""Indexes of any size take a bounded part of the memory of transfers, and give it back whatever happens."""

import asyncio
import errno
import struct
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote import directory_store
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.local_layout import SUFFIX_OF
from ottla.storage.remote.ports import IndexKind, RemoteStoreError
from ottla.storage.segment.transaction_index import Walk
from tests.support.filesystems import FaultyFileSystem
from tests.support.remote_reading import Reading, a_reading, quiet, run, when_here
from tests.support.remote_stores import a_directory_store, an_entry, segment_files

MIB = 1 << 20
ENTRIES = 90_000
"""Aborted transactions of a segment: 3 MB."""
SEGMENTS = 4
_TRANSACTION = struct.Struct(">hqqqq")


def transactions(count: int = ENTRIES) -> bytes:
    return b"".join(_TRANSACTION.pack(0, 7, 3 * at, 3 * at + 2, 3 * at + 3) for at in range(count))


def entry_of(at: int) -> SegmentEntry:
    return an_entry(0, 3 * ENTRIES, 1000, uuid=at + 1)


async def stored(tmp_path: Path) -> DirectoryStore:
    """A store with segments full of aborted transactions."""
    for name in ("files", "shared", "cache"):
        (tmp_path / name).mkdir()
    store = a_directory_store(tmp_path / "shared")
    files = segment_files(tmp_path / "files", bytes(1000), offset_index=b"", time_index=b"", transactions=transactions())
    for at in range(SEGMENTS):
        await store.copy(entry_of(at), files)
    return store


def test_indexes_of_many_aborted_transactions_are_never_in_memory(tmp_path: Path) -> None:
    async def story() -> None:
        reading = a_reading(await stored(tmp_path), tmp_path / "cache", memory=2 * MIB)
        end = 3 * ENTRIES - 2
        tracemalloc.start()
        try:
            await asyncio.gather(*(reading.indexes.load(entry_of(at)) for at in range(SEGMENTS)))
            for at in range(SEGMENTS):
                found, is_complete = await when_here(reading.reader.aborted_transactions, entry_of(at), end - 3, end, Walk())
                assert ([each.last_offset for each in found], is_complete) == ([end - 2 - 1 + 1, end + 1], True)
            held, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < MIB, "a reader keeps none of them"
        assert most < 4 * MIB, "pieces of one at a time, where threads work one after the other"
        assert 0 < reading.budget.most_used <= 2 * MIB
        assert reading.budget.used == 0
        await reading.reader.close()

    run(story)


def test_no_more_indexes_are_read_at_once_than_there_is_memory_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = await stored(tmp_path)
        reading = a_reading(store, tmp_path / "cache", memory=2 * MIB)
        save, running, most = store.save_indexes, 0, 0

        async def counted(entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await quiet()
            await save(entry, paths)
            running -= 1

        monkeypatch.setattr(store, "save_indexes", counted)
        await asyncio.gather(*(reading.indexes.load(entry_of(at)) for at in range(SEGMENTS)))
        assert most == 2
        assert (reading.budget.most_used, reading.budget.used) == (2 * MIB, 0)
        await reading.reader.close()

    run(story)


def test_loads_that_fail_or_are_cancelled_give_their_memory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = await stored(tmp_path)
        reading = a_reading(store, tmp_path / "cache", memory=MIB)
        gate, save = asyncio.Event(), store.save_indexes

        async def waits(entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
            await save(entry, paths)
            await gate.wait()

        monkeypatch.setattr(store, "save_indexes", waits)
        loads = [reading.indexes.load(entry_of(at)) for at in range(3)]
        await quiet()
        assert reading.budget.used == MIB
        loads[1].cancel()  # which waits for memory
        loads[0].cancel()  # which has it
        await quiet()
        assert reading.budget.used == MIB, "the third one has it"
        reading.store.errors.append(RemoteStoreError("broken"))
        failed = reading.indexes.load(entry_of(3))
        gate.set()
        await loads[2]
        with pytest.raises(RemoteStoreError, match="broken"):
            await failed
        assert reading.budget.used == 0
        await quiet()
        assert not [each.name for each in (tmp_path / "cache" / "remote-log-index-cache").iterdir() if each.suffix == ".tmp"]
        await reading.reader.close()

    run(story)


def test_indexes_that_the_disk_refuses_are_read_only_if_they_fit_into_their_part_of_the_memory(tmp_path: Path) -> None:
    filesystem = FaultyFileSystem(RealFileSystem())
    filesystem.error_number = errno.ENOSPC

    def reading_with(memory: int, store: DirectoryStore) -> Reading:
        reading = a_reading(store, tmp_path / "cache", filesystem=filesystem, memory=memory)
        filesystem.fails_if = lambda name, path: name == "open" and "index-cache" in path
        return reading

    async def story() -> None:
        store = await stored(tmp_path)
        store._filesystem = filesystem
        small = reading_with(8 * MIB, store)
        with pytest.raises(RemoteStoreError, match="3060000 bytes, and only 2097152 stay in memory while the disk refuses them"):
            await small.indexes.load(entry_of(0))
        assert small.budget.used == 0
        filesystem.fails_if = lambda name, path: False
        enough = reading_with(16 * MIB, store)
        await enough.indexes.load(entry_of(0))
        assert enough.budget.used == enough.budget.kept == 34 * ENTRIES
        await enough.indexes.load(entry_of(1))
        assert enough.indexes.find(entry_of(0)) is None, "two are too much"
        await enough.budget.take(14 * MIB)
        assert enough.indexes.find(entry_of(1)) is None, "a transfer that needs the memory gets it"
        assert (enough.budget.used, enough.budget.kept) == (14 * MIB, 0)
        await enough.reader.close()

    run(story)


@pytest.mark.parametrize("kind", [IndexKind.TRANSACTION, IndexKind.PRODUCER_SNAPSHOT])
def test_a_store_that_has_more_than_it_said_is_not_believed(tmp_path: Path, kind: IndexKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file grows between the question and the read, or is larger than any index."""

    async def story() -> None:
        store = await stored(tmp_path)
        size = await store.index_size(entry_of(0), kind)
        file = RealFileSystem().open(store._path(entry_of(0), SUFFIX_OF[kind]))
        file.pwrite(bytes(100), size)
        file.close()
        with pytest.raises(RemoteStoreError, match=f"more than the {size} bytes"):
            await store.index(entry_of(0), kind, size)
        monkeypatch.setattr(directory_store, "MAX_INDEX_BYTES", size)
        with pytest.raises(RemoteStoreError, match=f"more than the {size} bytes"):
            await store.index_size(entry_of(0), kind)
        with pytest.raises(RemoteStoreError, match=f"more than the {size} bytes"):
            await store.save_indexes(entry_of(0), {kind: str(tmp_path / "saved")})

    run(story)
