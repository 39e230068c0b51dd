"""Keeps chunks of remote segments on the local disk, within a limit: one file for each segment, the least recently used ones go first.

A file is removed as a whole, never a part of one: an answer that is being sent keeps its descriptor. Files of an earlier process are
removed at the start, since their contents are not known. They lie in the log directory itself, where Apache Kafka refuses folders of other
names, and ignores files. They leave the space of `free_space` to the logs, and go when those have grown. When the disk refuses a
chunk, or has no such space, the cache keeps chunks in memory for a minute.

Lives on the event loop; files are made and removed in threads. Chunks are verified and written where they are held (`held_chunks`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ottla.protocol.uuid import to_text
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.disk.free_space import spare_bytes
from ottla.storage.remote.batch_checks import CorruptChunk
from ottla.storage.remote.chunk_checks import Checked, check_chunk
from ottla.storage.remote.chunk_file import ChunkFile
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.held_chunks import HeldChunk
from ottla.storage.remote.memory_budget import MEMORY_SHARE, MemoryBudget
from ottla.storage.remote.ports import RemoteStoreError
from ottla.storage.remote.threads import Threads

log = logging.getLogger(__name__)

FILE_PREFIX: Final = "remote-log-chunk-cache-"
"""The beginning of the names of all files."""
OFF_MS: Final = 60_000
"""Time for which nothing is written after the disk has refused a chunk."""


class ChunkCache:
    """The files of all segments that are read. `limit` bytes of the disk, or a tenth of what is free at the start if that is less."""

    def __init__(
        self,
        filesystem: FileSystem,
        log_dir: str,
        limit: int,
        chunk_bytes: int,
        budget: MemoryBudget,
        threads: Threads,
        now_ms: Callable[[], int],
    ) -> None:
        self._filesystem = filesystem
        self._directory = log_dir
        self._threads = threads
        self._now_ms = now_ms
        self._budget = budget
        self.limit = limit
        self.chunk_bytes = chunk_bytes
        self.size = 0
        """Bytes of the disk that are in use."""
        self.evictions = 0
        self._opened = 0
        self._files: OrderedDict[bytes, tuple[str, ChunkFile]] = OrderedDict()
        self._in_memory: OrderedDict[tuple[bytes, int], tuple[ChunkFile, int]] = OrderedDict()
        self._memory_bytes = 0
        self._off_until = -1
        self._removals: set[asyncio.Future[None]] = set()
        self._making = asyncio.Lock()
        self._moving = asyncio.Lock()
        """Held while a chunk comes into this process: on its way it takes several times the memory for which it counts."""
        budget.relieve_with(self._relieve)

    def prepare(self) -> None:
        """Removes files of an earlier process. Blocks; called once, at the start. Raises OSError."""
        for name in self._filesystem.list_directory(self._directory):
            if name.startswith(FILE_PREFIX):
                self._filesystem.unlink(f"{self._directory}/{name}")
        free = self._filesystem.total_and_free_bytes(self._directory)[1]
        self.limit = min(self.limit, free // 10)

    def find(self, entry: SegmentEntry) -> ChunkFile | None:
        """Returns the file of a segment, which is then the most recently used."""
        found = self._files.get(entry.id.uuid)
        if found is None:
            return None
        self._files.move_to_end(entry.id.uuid)
        return found[1]

    async def put(self, entry: SegmentEntry, number: int, chunk: HeldChunk, first_batch: int | None) -> bool:
        """Verifies a chunk of the segment, and makes it present. Raises CorruptChunk, and RemoteStoreError if the chunk is lost.

        True if the chunk stays in memory, whose bytes the cache then gives back to the budget.
        """
        while True:
            file = await self._open(entry)
            bound = self.limit if file.file is None else await self._bound()
            async with file.lock:
                if number in file.present:
                    return False
                if not file.is_evicted and (file.file is None or self._has_room(entry, file, chunk.size, bound)):
                    try:
                        return await self._store(entry, file, number, chunk, first_batch)
                    except CorruptChunk:
                        if not file.is_evicted:
                            self._evict(entry.id.uuid)  # which of the chunks is wrong is not known
                        raise
                    except OSError:  # the disk does not give back what it took, or the file is gone
                        if self.find(entry) is not file:
                            return False  # the segment may be gone, or its index wrong: readers ask again
                        self._evict(entry.id.uuid)

    async def _store(self, entry: SegmentEntry, file: ChunkFile, number: int, chunk: HeldChunk, first_batch: int | None) -> bool:
        if not self._is_off() and file.file is not None:
            try:
                checked = await self._write(entry, file, file.file, number, chunk, first_batch)
            except OSError as error:
                if file.is_evicted or isinstance(error, FileNotFoundError):
                    raise  # it was removed
                self._turn_off(error)
            else:
                file.mark_present(number, chunk.size, checked)
                if not file.is_evicted:
                    self.size += chunk.size
                return False
        async with self._moving:
            data, checked = await self._checked_here(file, number, chunk, first_batch)
        file.mark_present(number, chunk.size, checked, data)
        if file.is_evicted:
            return False
        self._keep(entry, file, number, chunk.size)
        return True

    async def _write(
        self, entry: SegmentEntry, file: ChunkFile, on_disk: File, number: int, chunk: HeldChunk, first_batch: int | None
    ) -> Checked:
        if not file.in_memory:
            try:
                return await chunk.write(file.check(number, first_batch), on_disk.path)
            except RemoteStoreError:
                if not file.is_evicted:
                    self._evict(entry.id.uuid)  # what was written is not known
                raise
        async with self._moving:  # only this process has the chunks around it
            data, checked = await self._checked_here(file, number, chunk, first_batch)
            await self._threads(partial(on_disk.pwrite, data, number * self.chunk_bytes))
        return checked

    async def _checked_here(
        self, file: ChunkFile, number: int, chunk: HeldChunk, first_batch: int | None
    ) -> tuple[bytes | memoryview, Checked]:
        """Brings a chunk into this process, and verifies it. Raises CorruptChunk, OSError, RemoteStoreError."""
        data = await chunk.read()
        check = file.check(number, first_batch)
        return data, await self._threads(partial(check_chunk, data, check, file.around()))

    async def _open(self, entry: SegmentEntry) -> ChunkFile:
        """Returns the file of a segment. A thread makes it if there is none: beside syncs of others that has taken 50 ms."""
        file = self._usable(entry)
        if file is not None:
            return file
        async with self._making:
            file = self._usable(entry)
            if file is None:
                self._opened += 1  # an evicted file of the segment may still have to be removed
                path = f"{self._directory}/{FILE_PREFIX}{entry.start_offset}_{to_text(entry.id.uuid)}_{self._opened}"
                file = ChunkFile(None if self._is_off() else await self._make(path, entry.size), entry, self.chunk_bytes)
                self._files[entry.id.uuid] = path, file
            return file

    def _usable(self, entry: SegmentEntry) -> ChunkFile | None:
        file = self.find(entry)
        if file is not None and file.file is None and not self._is_off():
            self._evict(entry.id.uuid)
            return None
        return file

    async def _make(self, path: str, size: int) -> File | None:
        """Returns a new file; None if the disk refuses it. A file whose caller does not wait for it any more is removed."""
        making = asyncio.ensure_future(self._threads(partial(self._make_file, path, size)))
        try:
            return await asyncio.shield(making)
        except OSError as error:
            self._turn_off(error)
            return None
        except asyncio.CancelledError:
            self._remove_later(self._remove_made(making, path))
            raise

    def _make_file(self, path: str, size: int) -> File:
        file = self._filesystem.open(path, create=True)
        file.truncate(size)
        return file

    async def _remove_made(self, making: asyncio.Future[File], path: str) -> None:
        with contextlib.suppress(OSError):
            await making
            await self._threads(partial(self._unlink, path))

    def _remove_later(self, removal: Awaitable[None]) -> None:
        self._removals.add(task := asyncio.ensure_future(removal))
        task.add_done_callback(self._removals.discard)

    def remove(self, entry: SegmentEntry) -> None:
        """Forgets a segment that is deleted, or whose bytes turned out wrong."""
        if entry.id.uuid in self._files:
            self._evict(entry.id.uuid)

    async def close(self) -> None:
        """Removes all files. Nothing is read any more."""
        for uuid in list(self._files):
            self._evict(uuid)
        await asyncio.gather(*self._removals)

    def _is_off(self) -> bool:
        return self._now_ms() < self._off_until

    def _turn_off(self, error: OSError) -> None:
        log.warning(
            "%s: %s; records of remote segments are read without a cache for %d s. Free space on this disk.",
            self._directory,
            error.strerror or error,
            OFF_MS // 1000,
        )
        self._off_until = self._now_ms() + OFF_MS

    # -- what goes -------------------------------------------------------------------------------------------------------

    async def yield_space(self) -> None:
        """Removes files while the disk has too little space for logs."""
        bound = await self._bound()
        while self.size > bound and self._files:
            self._evict(next(iter(self._files)))

    async def _bound(self) -> int:
        """Returns how many bytes the files may have now. Space of files that are being removed counts when it is free."""
        while True:
            try:
                spare = await self._threads(partial(spare_bytes, self._filesystem, self._directory))
            except OSError:
                return self.limit  # the next write tells what is wrong
            if spare >= self.chunk_bytes or not self._removals:
                return min(self.limit, self.size + spare)
            await asyncio.wait(self._removals)

    def _has_room(self, entry: SegmentEntry, file: ChunkFile, size: int, bound: int) -> bool:
        """Removes files until there is room for `size` bytes of this one. False if that was this one itself.

        A chunk that is larger than the limit is written all the same, and one for which the disk has no space is not.
        """
        for uuid, (_, other) in list(self._files.items()):
            if self.size + size <= bound:
                return True
            if other is not file:
                self._evict(uuid)
        if self.size + size <= bound:
            return True
        if not file.present_bytes:
            if bound == self.limit:
                return True
            self._turn_off(OSError(errno.ENOSPC, "the rest of the space is for logs"))
        self._evict(entry.id.uuid)
        return False

    def _evict(self, uuid: bytes) -> None:
        path, file = self._files.pop(uuid)
        file.is_evicted = True
        self.size -= file.present_bytes
        self.evictions += 1
        for number in list(file.in_memory):
            if (uuid, number) in self._in_memory:
                self._drop(uuid, number)
        if file.file is not None:
            self._remove_later(self._threads(partial(self._unlink, path)))

    def _unlink(self, path: str) -> None:
        try:
            self._filesystem.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s: %s; the file is removed at the next start", path, error.strerror or error)

    def _keep(self, entry: SegmentEntry, file: ChunkFile, number: int, size: int) -> None:
        self._in_memory[entry.id.uuid, number] = file, size
        self._memory_bytes += size
        self._budget.keep(size)
        while self._memory_bytes > self._budget.limit // MEMORY_SHARE and len(self._in_memory) > 1:
            self._drop(*next(iter(self._in_memory)))

    def _relieve(self) -> int:
        """Forgets the oldest chunk in memory."""
        return self._forget(*next(iter(self._in_memory))) if self._in_memory else 0

    def _drop(self, uuid: bytes, number: int) -> None:
        self._budget.drop(self._forget(uuid, number))

    def _forget(self, uuid: bytes, number: int) -> int:
        file, size = self._in_memory.pop((uuid, number))
        file.drop_from_memory(number)
        self._memory_bytes -= size
        return size
