"""Chunks of remote segments are verified by themselves and where they meet others, in whatever order they come, go and are lost."""

import errno
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.records.batch import iter_batches
from ottla.storage.disk.filesystem import File, RealFileSystem
from ottla.storage.remote.batch_checks import CorruptChunk
from ottla.storage.remote.chunk_checks import Checked, ChunkCheck, check_chunk
from ottla.storage.remote.chunk_file import ChunkFile
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.held_chunks import LocalChunk
from ottla.storage.remote.ports import RemoteStoreError
from tests.support.remote_reading import Reading, a_held_chunk, quiet, run
from tests.support.remote_stores import at_once
from tests.unit.storage.remote.test_chunk_cache import chunk_files
from tests.unit.storage.remote.test_segment_reader import a_local_log, a_remote_log


class Unreadable:
    """A file on a disk that takes everything, and gives nothing back."""

    def __init__(self, inner: File) -> None:
        self._inner = inner

    def pread(self, length: int, at: int) -> bytes:
        raise OSError(errno.EIO, "the disk fails")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class UnreadableCache(RealFileSystem):
    """The disk of a cache whose chunks are such files."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        file = super().open(path, create=create, read_only=read_only)
        return Unreadable(file) if "remote-log-chunk-cache-" in path else file


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


async def first_chunks(reading: Reading, entry: SegmentEntry) -> tuple[bytes, bytes, int]:
    """Two chunks of a segment, and where the first batch that the index has of the second one begins."""
    first, second = [await reading.store.fetch(entry, start, start + 1000) for start in (0, 1000)]
    await reading.indexes.load(entry)
    segment = reading.indexes.find(entry)
    assert segment is not None
    at = segment.first_batch_in(1000, 2000)
    assert at is not None
    return first, second, at


def test_a_chunk_is_verified_although_the_disk_does_not_give_back_the_chunk_before(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    filesystem = UnreadableCache()

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log, filesystem=filesystem)
        first, second, at = await first_chunks(reading, entry)
        await reading.chunks.put(entry, 0, a_held_chunk(first, filesystem), 0)
        await reading.chunks.put(entry, 1, a_held_chunk(changed(second, 0), filesystem), at)
        file = reading.chunks.find(entry)
        assert file is not None
        assert file.present == {1}, "a reader gets the batch over the border, which was not verified"
        with pytest.raises(CorruptChunk):
            await reading.chunks.put(entry, 0, a_held_chunk(first, filesystem), 0)

    run(story)


@pytest.mark.parametrize(
    ("stored", "dropped", "is_first_changed"), [((0,), 0, False), ((0, 1), 1, True), ((0, 1), 1, False), ((1, 0), 1, False)]
)
def test_a_chunk_that_takes_the_place_of_one_in_memory_is_verified(
    tmp_path: Path, stored: tuple[int, ...], dropped: int, is_first_changed: bool
) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        first, second, at = await first_chunks(reading, entry)
        reading.chunks._off_until = 1 << 60  # the disk refuses everything
        reading.budget.used = 5000
        for number in stored:
            await reading.chunks.put(entry, number, a_held_chunk((first, second)[number]), (0, at)[number])
        reading.chunks._drop(entry.id.uuid, dropped)
        with pytest.raises(CorruptChunk):
            wrong = a_held_chunk(changed(second, 0 if is_first_changed else at - 1000 + 70))
            await reading.chunks.put(entry, 1, wrong, at)

    run(story)


def test_a_cache_whose_file_was_removed_makes_a_new_one(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        first, second, at = await first_chunks(reading, entry)
        await reading.chunks.put(entry, 0, a_held_chunk(first), 0)
        for path in chunk_files(tmp_path):
            path.unlink()
        await reading.chunks.put(entry, 1, a_held_chunk(second), at)
        file = reading.chunks.find(entry)
        assert file is not None
        assert file.present == {1}
        assert (len(chunk_files(tmp_path)), reading.chunks.size) == (1, 1000)
        await reading.reader.close()

    run(story)


class LostChunk(LocalChunk):
    """A chunk of a process that ends while it writes."""

    async def write(self, check: ChunkCheck, path: str) -> Checked:
        await super().write(check, path)
        raise RemoteStoreError("the process ended")


def test_a_file_that_a_lost_process_has_written_to_is_not_used_any_more(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        first, second, at = await first_chunks(reading, entry)
        await reading.chunks.put(entry, 0, a_held_chunk(first), 0)
        with pytest.raises(RemoteStoreError):
            await reading.chunks.put(entry, 1, LostChunk(second, RealFileSystem(), at_once), at)
        assert reading.chunks.find(entry) is None
        assert reading.chunks.size == 0
        await reading.chunks.put(entry, 1, a_held_chunk(second), at)
        await quiet()
        assert len(chunk_files(tmp_path)) == 1
        await reading.reader.close()

    run(story)


@pytest.mark.parametrize(("dropped", "at"), [(0, 70), (0, 500), (1, 70), (1, 500)])
def test_a_chunk_that_was_dropped_before_the_next_one_came_is_verified_from_its_beginning(tmp_path: Path, dropped: int, at: int) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        await reading.indexes.load(entry)
        segment = reading.indexes.find(entry)
        assert segment is not None
        chunks = [await reading.store.fetch(entry, start, start + 1000) for start in (0, 1000, 2000)]
        heads = [segment.first_batch_in(number * 1000, (number + 1) * 1000) for number in range(3)]
        file = ChunkFile(None, entry, 1000)
        for number in (dropped, dropped + 1):
            checked = check_chunk(chunks[number], file.check(number, heads[number]), file.around())
            file.mark_present(number, 1000, checked, chunks[number])
            if number == dropped:
                file.drop_from_memory(number)
        head = heads[dropped]
        assert head is not None
        place = max(at, head - dropped * 1000 + 70)
        with pytest.raises(CorruptChunk):
            check_chunk(changed(chunks[dropped], place), file.check(dropped, head), file.around())
        check_chunk(chunks[dropped], file.check(dropped, head), file.around())

    run(story)


def test_a_chunk_that_is_dropped_from_memory_during_a_check_is_verified_again(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        first, second, at = await first_chunks(reading, entry)
        file = ChunkFile(None, entry, 1000)
        file.mark_present(1, 1000, check_chunk(second, file.check(1, at), file.around()), second)
        checked = check_chunk(first, file.check(0, 0), file.around())
        file.drop_from_memory(1)
        file.mark_present(0, 1000, checked, first)
        for place in (0, at - 1000 + 70):
            with pytest.raises(CorruptChunk):
                check_chunk(changed(second, place), file.check(1, at), file.around())
        check_chunk(second, file.check(1, at), file.around())

    run(story)


def test_a_dropped_chunk_whose_beginning_is_a_batch_is_verified_from_there(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        data = await reading.store.fetch(entry, 0, entry.size)
        batches = [at for at, _ in iter_batches(data)]
        border, head = next((at, after) for at, after in pairwise(batches) if at >= 1000)
        chunks = [data[start : start + border] for start in range(0, 3 * border, border)]
        heads = [0, head, next(at for at in batches if at > 2 * border)]
        file = ChunkFile(None, entry, border)
        for number in (1, 2, 0):
            checked = check_chunk(chunks[number], file.check(number, heads[number]), file.around())
            file.mark_present(number, border, checked, chunks[number])
            file.drop_from_memory(1)
        with pytest.raises(CorruptChunk):
            check_chunk(changed(chunks[1], 70), file.check(1, head), file.around())
        check_chunk(chunks[1], file.check(1, head), file.around())

    run(story)


class LostUnwritten(LocalChunk):
    """A chunk of a process that ends before it sends the chunk."""

    async def read(self) -> bytes:
        raise RemoteStoreError("the process ended")


def test_the_loss_of_a_chunk_that_was_not_written_takes_no_others_along(tmp_path: Path) -> None:
    log = a_local_log(tmp_path)

    async def story() -> None:
        reading, (entry, *_) = await a_remote_log(tmp_path, log)
        first, second, at = await first_chunks(reading, entry)
        await reading.chunks.put(entry, 0, a_held_chunk(first), 0)
        reading.chunks._off_until = 1 << 60  # the disk refuses everything
        with pytest.raises(RemoteStoreError):
            await reading.chunks.put(entry, 1, LostUnwritten(second, RealFileSystem(), at_once), at)
        file = reading.chunks.find(entry)
        assert file is not None
        assert file.present == {0}
        await reading.reader.close()

    run(story)
