"""The caches of remote segments stay within their limits, and reads go on when the disk refuses them."""

import asyncio
import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote import index_cache
from ottla.storage.remote.chunk_loads import TooManyReads
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.held_chunks import LocalChunk
from ottla.storage.remote.ports import IndexKind, RemoteStoreError
from ottla.storage.remote.segment_reader import NotHere
from tests.support.filesystems import FaultyFileSystem
from tests.support.remote_reading import Reading, a_reading, quiet, run, when_here
from tests.support.remote_stores import a_directory_store
from tests.unit.storage.remote.test_segment_reader import a_local_log, a_remote_log, local_bytes, read_segments


def chunk_files(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").glob("remote-log-chunk-cache-*"))


def disk_bytes(tmp_path: Path, folder: str) -> int:
    return sum(512 * path.stat().st_blocks for path in (tmp_path / "cache" / folder).iterdir())


@pytest.mark.parametrize("limit", [3000, 8000, 12_000])
def test_the_chunk_cache_stays_within_its_limit(tmp_path: Path, limit: int) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, chunk_bytes=1000, limit=limit)
        for _ in range(2):
            assert await read_segments(reading, entries, 700) == local_bytes(log, entries)
            assert reading.chunks.size <= limit
        assert reading.chunks.evictions
        await quiet()
        left = len(chunk_files(tmp_path))
        assert left <= 1 + limit // 9000
        await reading.reader.close()

    run(story)


def test_an_answer_outlives_the_file_that_it_is_sent_from(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        found = await when_here(reading.reader.read, entries[0], 0, 1 << 20, True, True)
        assert found.region is not None
        begun = found.region.file.pread(found.region.length, 0)
        await quiet()  # what is read ahead would make the file anew
        reading.reader.forget(entries[0])
        await quiet()
        assert not chunk_files(tmp_path)
        assert found.region.file.pread(found.region.length, 0) == begun
        await reading.reader.close()

    run(story)


def test_a_cache_of_an_earlier_process_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "remote-log-chunk-cache-0_x_1").write_bytes(b"of whom?")
    (tmp_path / "cache" / "remote-log-metadata-0.snapshot").write_bytes(b"another's")

    a_reading(a_directory_store(tmp_path), tmp_path / "cache")

    assert not chunk_files(tmp_path)
    assert (tmp_path / "cache" / "remote-log-metadata-0.snapshot").exists()


def test_a_cache_leaves_nothing_when_it_is_closed(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        await read_segments(reading, entries, 700)
        assert chunk_files(tmp_path)
        await reading.reader.close()
        assert not chunk_files(tmp_path)
        assert reading.chunks.size == 0

    run(story)


def test_a_thread_makes_the_files_of_a_cache(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    filesystem = FaultyFileSystem(RealFileSystem())
    is_in_thread, made = [False], []

    async def in_thread(work: Callable[[], Any]) -> Any:
        is_in_thread[0] = True
        try:
            return work()
        finally:
            is_in_thread[0] = False

    def note(name: str, path: str) -> bool:
        if name in ("open", "truncate") and "remote-log-chunk-cache-" in path:
            made.append((name, is_in_thread[0]))
        return False

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, filesystem=filesystem)
        reading.chunks._threads = reading.loads._source._threads = in_thread
        filesystem.fails_if = note
        assert await read_segments(reading, entries, 700) == local_bytes(log, entries)
        assert set(made) == {("open", True), ("truncate", True)}
        await reading.reader.close()

    run(story)


def test_a_cache_that_is_closed_while_a_file_is_made_leaves_nothing(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        gate = asyncio.Event()

        async def in_thread(work: Callable[[], Any]) -> Any:
            await gate.wait()
            return work()

        reading.chunks._threads = in_thread
        await reading.indexes.load(entry)
        reading.loads.want(entry, 0, None, "reader")
        await quiet()
        assert reading.loads.running == 1
        closing = asyncio.ensure_future(reading.reader.close())
        await quiet()
        gate.set()
        await asyncio.wait_for(closing, 60)
        assert not chunk_files(tmp_path)

    run(story)


@pytest.mark.parametrize("method", ["pwrite", "open", "truncate"])
def test_reads_go_on_from_memory_while_the_disk_is_full(tmp_path: Path, method: str) -> None:
    log = a_local_log(tmp_path)
    filesystem = FaultyFileSystem(RealFileSystem())
    filesystem.error_number = errno.ENOSPC

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, filesystem=filesystem, memory=16_000)
        filesystem.fails_if = lambda name, _: name == method
        expected = local_bytes(log, entries)
        assert await read_segments(reading, entries, 700) == expected
        await quiet()
        assert 0 < reading.budget.used <= 16_000 // 4 + 1000
        assert reading.chunks.size == 0
        filesystem.fails_if = None
        assert await read_segments(reading, entries, 700) == expected
        assert reading.chunks.size == 0  # it does not try again at once
        reading.now_ms[0] += 60_001
        assert await read_segments(reading, entries, 700) == expected
        assert reading.chunks.size
        await reading.reader.close()

    run(story)


def test_chunks_in_memory_do_not_keep_the_whole_budget_from_reads_and_copies(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log, memory=1500)
        reading.chunks._off_until = 1 << 60  # the disk refuses everything
        await reading.indexes.load(entry)
        for number in range(3):
            await asyncio.wait_for(reading.loads.want(entry, number, None, "reader"), 10)
            assert reading.budget.used == 1000
        reading.store.gate = asyncio.Event()
        done = reading.loads.want(entry, 3, None, "reader")
        await quiet()
        copy = asyncio.ensure_future(reading.budget.take(1500))
        reading.store.gate.set()
        await done
        await asyncio.wait_for(copy, 10)
        reading.budget.give_back(1500)
        assert reading.budget.used == 0
        await reading.reader.close()

    run(story)


@pytest.mark.parametrize("is_off", [True, False])
def test_one_chunk_at_a_time_comes_into_this_process(tmp_path: Path, is_off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_local_log(tmp_path)
    read, moving, most = LocalChunk.read, 0, 0

    async def counted(chunk: LocalChunk) -> bytes | memoryview:
        nonlocal moving, most
        moving += 1
        most = max(most, moving)
        await quiet()
        moving -= 1
        return await read(chunk)

    monkeypatch.setattr(LocalChunk, "read", counted)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        if is_off:
            reading.chunks._off_until = 1 << 60  # the disk refuses everything
        for entry in entries[:3]:
            file = await reading.chunks._open(entry)
            file.in_memory[-1] = b""  # or it has refused a chunk of the segment before
        await asyncio.gather(*(reading.loads.want(entry, number, None, entry.id) for entry in entries[:3] for number in range(2)))
        assert most == 1
        await reading.reader.close()

    run(story)


def test_a_chunk_is_read_once_however_many_readers_want_it(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        reading.store.gate = asyncio.Event()
        readers = [asyncio.ensure_future(when_here(reading.reader.read, entries[0], 0, 500, True, True)) for _ in range(10)]
        await quiet()
        reading.store.gate.set()
        await asyncio.gather(*readers)
        assert len(reading.store.fetches) == 1
        assert len(reading.store.indexes) == 3
        await reading.reader.close()

    run(story)


def test_a_read_is_completed_although_its_reader_has_left(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        reading.store.gate = asyncio.Event()
        reader = asyncio.ensure_future(leave_after_asking(reading, entries[0]))
        await quiet()
        await reader
        reading.store.gate.set()
        await quiet()
        assert reading.reader.read(entries[0], 0, 500, True, True).region is not None
        await reading.reader.close()

    run(story)


async def leave_after_asking(reading: Reading, entry: SegmentEntry) -> None:
    await reading.indexes.load(entry)
    with pytest.raises(NotHere) as missing:
        reading.reader.read(entry, 0, 500, True, True)
    missing.value.load("one who leaves")


def test_no_more_than_the_budget_is_in_memory(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, memory=3000)
        await reading.indexes.load(entries[0])
        reading.store.gate = asyncio.Event()
        for number in range(8):
            reading.loads.want(entries[0], number, None, number)
        await quiet()
        assert reading.budget.used == 3000
        assert reading.loads.running == 3
        copy = asyncio.ensure_future(reading.budget.take(2000))
        reading.store.gate.set()
        await copy
        reading.budget.give_back(2000)
        await quiet()
        assert reading.budget.used == 0
        assert len(reading.store.fetches) == 8
        await reading.reader.close()

    run(story)


def test_demand_comes_before_what_is_read_ahead_and_readers_have_turns(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, most_running=1)
        entry = entries[0]
        for number in (7, 6):
            reading.loads.read_ahead(entry, number, None)
        for number, reader in ((0, "a"), (1, "a"), (2, "a"), (3, "b"), (6, "b")):
            reading.loads.want(entry, number, None, reader)
        await quiet()
        assert [start // 1000 for _, start, _ in reading.store.fetches] == [7, 0, 3, 1, 6, 2]
        await reading.reader.close()

    run(story)


def test_only_so_many_reads_wait(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, most_running=1, most_waiting=2)
        reading.store.gate = asyncio.Event()
        for number in range(3):
            reading.loads.want(entries[0], number, None, "reader")
        with pytest.raises(TooManyReads):
            reading.loads.want(entries[0], 3, None, "reader")
        await reading.reader.close()

    run(story)


def test_a_failed_read_is_reported_and_its_quota_given_back(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        reading.store.errors = [RemoteStoreError("503")]
        with pytest.raises(RemoteStoreError, match="503"):
            await when_here(reading.reader.read, entries[0], 0, 500, True, True)
        assert reading.counts.remote_fetch_errors == 0  # it was an index
        await reading.indexes.load(entries[0])
        reading.store.errors = [RemoteStoreError("503")]
        with pytest.raises(RemoteStoreError, match="503"):
            await when_here(reading.reader.read, entries[0], 0, 500, True, True)
        assert (reading.counts.remote_fetch_errors, reading.quota.reserved, reading.budget.used) == (1, 0, 0)
        assert (await when_here(reading.reader.read, entries[0], 0, 500, True, True)).region is not None
        assert reading.quota.reserved == 1000
        await reading.reader.close()

    run(story)


def test_a_quota_delays_reads(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        reading.quota.delays = [0.001, 0.001]
        assert (await when_here(reading.reader.read, entries[0], 0, 500, True, True)).region is not None
        assert reading.loads.throttled_seconds == pytest.approx(0.002)
        await reading.reader.close()

    run(story)


def test_few_indexes_are_read_at_once_and_not_too_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_cache, "MOST_READ", 2)
    monkeypatch.setattr(index_cache, "MOST_LOADS", 3)
    log = a_local_log(tmp_path, segment_bytes=2000)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        first, second, third, fourth = entries[:4]
        gate, save = asyncio.Event(), reading.store.inner.save_indexes

        async def gated(entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
            await gate.wait()
            await save(entry, paths)

        monkeypatch.setattr(reading.store.inner, "save_indexes", gated)
        loads = [reading.indexes.load(each) for each in (first, second, third)]
        with pytest.raises(TooManyReads):
            reading.indexes.load(fourth)
        assert reading.indexes.load(first) is loads[0]
        await quiet()
        assert {start for start, _ in reading.store.indexes} == {first.start_offset, second.start_offset}
        gate.set()
        await asyncio.gather(*loads)
        assert reading.indexes.find(third) is not None
        await reading.indexes.load(fourth)
        await reading.reader.close()

    run(story)


def test_the_open_transactions_of_a_segment_are_read_once(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        await reading.indexes.load(entry)
        segment = reading.indexes.find(entry)
        assert segment is not None
        found = reading.indexes.load_open_transactions(segment)
        assert reading.indexes.load_open_transactions(segment) is found
        await found
        assert segment.first_open_offset is not None
        assert reading.store.indexes.count((entry.start_offset, IndexKind.PRODUCER_SNAPSHOT)) == 1
        await reading.reader.close()

    run(story)


def test_indexes_of_an_earlier_process_are_used_again(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        await read_segments(reading, entries, 700)
        await reading.reader.close()
        (tmp_path / "cache" / "remote-log-index-cache" / "17_x.index").write_bytes(b"alone")
        again = a_reading(reading.store.inner, tmp_path / "cache")
        assert await read_segments(again, entries, 700) == local_bytes(log, entries)
        assert not again.store.indexes
        await quiet()
        names = {path.name for path in (tmp_path / "cache" / "remote-log-index-cache").iterdir()}
        assert {name.split(".")[1] for name in names} == {"index", "timeindex", "txnindex"}
        assert len(names) == 3 * len(entries)
        assert f"0_{'A' * 22}.index" in names
        await again.reader.close()

    run(story)


def test_indexes_of_a_process_that_was_killed_are_not_used(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        await read_segments(reading, entries, 700)
        again = a_reading(reading.store.inner, tmp_path / "cache")
        assert not list((tmp_path / "cache" / "remote-log-index-cache").iterdir())
        assert await read_segments(again, entries, 700) == local_bytes(log, entries)
        assert len(again.store.indexes) == 3 * len(entries)
        await again.reader.close()

    run(story)


def test_indexes_that_cannot_be_of_their_segment_are_read_again(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log)
        await read_segments(reading, entries, 700)
        await reading.reader.close()
        (tmp_path / "cache" / "remote-log-index-cache" / f"0_{'A' * 22}.index").write_bytes(bytes(16))
        again = a_reading(reading.store.inner, tmp_path / "cache")
        assert await read_segments(again, entries, 700) == local_bytes(log, entries)
        assert {start for start, _ in again.store.indexes} == {0}
        await again.reader.close()

    run(story)


def test_the_index_cache_stays_within_its_limit(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, index_limit=2500)
        for _ in range(2):
            assert await read_segments(reading, entries, 700) == local_bytes(log, entries)
            assert reading.indexes.size <= 2500
        await quiet()
        assert disk_bytes(tmp_path, "remote-log-index-cache") <= 3 * 4096
        await reading.reader.close()

    run(story)


def test_indexes_stay_in_memory_while_the_disk_is_full(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    filesystem = FaultyFileSystem(RealFileSystem())
    filesystem.error_number = errno.ENOSPC

    async def story() -> None:
        reading, entries = await a_remote_log(tmp_path, log, filesystem=filesystem)
        filesystem.fails_if = lambda name, path: name == "open" and "index-cache" in path
        assert await read_segments(reading, entries, 700) == local_bytes(log, entries)
        assert reading.indexes.find(entries[0]) is not None
        assert reading.budget.kept == reading.budget.used == sum(each.index_bytes for each in map(reading.indexes.find, entries) if each)
        asked = len(reading.store.indexes)
        found = await when_here(reading.reader.find_by_timestamp, entries[0], 1000, 0, True, None)
        assert found.offset == 0
        assert len(reading.store.indexes) == asked, "they are in memory"
        for entry in entries:
            reading.indexes.remove(entry)
        assert reading.budget.used == reading.budget.kept == 0
        await reading.reader.close()

    run(story)
