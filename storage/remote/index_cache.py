"""Keeps the indexes of remote segments on the local disk, in Apache Kafka's folder and under its names.

`remote-log-index-cache/<base offset>_<segment uuid>` with the suffixes `.index`, `.timeindex` and `.txnindex`, within
`remote.log.index.file.cache.total.size.bytes`; the least recently used ones go first. Files of an earlier process are used again if that
was stopped in order, and if they can belong to their segment: without a sync a power cut may leave empty ones, which would pass. If the
disk refuses them, the indexes of the segment stay in memory.

An offset index or a time index that is not that of its segment is made anew from the records, one at a time for all segments.

Lives on the event loop; files are read, written and removed in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final, cast

from ottla.protocol.uuid import to_text
from ottla.storage.disk.file_names import TEMPORARY_SUFFIX
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.free_space import spare_bytes
from ottla.storage.errors import CorruptIndex, CorruptSnapshot
from ottla.storage.remote.chunk_loads import TooManyReads
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.held_files import HeldFiles
from ottla.storage.remote.index_checks import check_index
from ottla.storage.remote.ports import IndexKind, RemoteStore, RemoteStoreError
from ottla.storage.remote.record_walk import rebuild_indexes
from ottla.storage.remote.remote_segment import SUFFIXES, RemoteSegment, first_open_offset
from ottla.storage.remote.threads import Threads

log = logging.getLogger(__name__)

DIRECTORY: Final = "remote-log-index-cache"
DURABLE: Final = "remote-log-index-cache.durable"
"""The file in the log directory by which a process tells the next one that all files of the cache are durable."""
KINDS: Final = (IndexKind.OFFSET, IndexKind.TIMESTAMP, IndexKind.TRANSACTION)
"""The indexes in the order of SUFFIXES."""
LOAD_SECONDS: Final = 60.0
"""Time after which reading the indexes of a segment has failed, whatever the store does."""
SEGMENT_BYTES: Final = 1024
"""Bytes that each segment counts beside its entries: the number of segments is limited, too."""
MOST_READ: Final = 8
"""Segments whose indexes are read from the store at the same time: meanwhile they are in memory."""
MOST_LOADS: Final = 1000
"""Segments whose indexes are read, or wait for that."""
MAX_HELD: Final = 8
"""Segments whose indexes are in memory because the disk refuses them."""
MAX_WRONG: Final = 1000
"""Segments that are known to have wrong indexes in the store."""


class IndexCache:
    """The indexes of all segments that are read."""

    def __init__(self, filesystem: FileSystem, log_dir: str, limit: int, store: RemoteStore, threads: Threads) -> None:
        self._filesystem = filesystem
        self._directory = f"{log_dir}/{DIRECTORY}"
        self._durable = f"{log_dir}/{DURABLE}"
        self._store = store
        self._threads = threads
        self.limit = limit
        """Bytes of all files; may be changed at any time."""
        self.size = 0
        self.on_failure: Callable[[SegmentEntry, BaseException], None] = _ignore
        """Called when the indexes of a segment could not be read."""
        self._segments: OrderedDict[str, RemoteSegment] = OrderedDict()
        self._on_disk: OrderedDict[str, int] = OrderedDict()
        """Name of a segment whose files an earlier process left, or this one wrote -> their bytes."""
        self._loads: dict[str, asyncio.Task[None]] = {}
        self._removals: dict[str, asyncio.Future[None]] = {}
        self._wrong: OrderedDict[str, None] = OrderedDict()
        """Names of segments whose indexes did not fit their records: they are made anew from those."""
        self._reading = asyncio.Semaphore(MOST_READ)
        self._rebuilding = asyncio.Lock()

    def prepare(self) -> None:
        """Makes the folder, and finds what is in it. Blocks; called once, at the start. Raises OSError."""
        self._filesystem.make_directory(self._directory)
        is_durable = self._filesystem.exists(self._durable)
        if is_durable:
            self._filesystem.unlink(self._durable)
        sizes: dict[str, dict[str, int]] = {}
        for file in self._filesystem.list_directory(self._directory):
            name, dot, suffix = file.partition(".")
            if is_durable and dot + suffix in SUFFIXES:
                sizes.setdefault(name, {})[suffix] = self._filesystem.size(f"{self._directory}/{file}")
            else:
                self._filesystem.unlink(f"{self._directory}/{file}")
        for name, files in sizes.items():
            if len(files) == len(SUFFIXES):
                self._count(name, sum(files.values()))
            else:
                self._unlink(name)

    def find(self, entry: SegmentEntry) -> RemoteSegment | None:
        """Returns a segment whose indexes are here, which is then the most recently used."""
        name = _name(entry)
        segment = self._segments.get(name)
        if segment is not None:
            self._segments.move_to_end(name)
            if name in self._on_disk:
                self._on_disk.move_to_end(name)
        return segment

    def load(self, entry: SegmentEntry) -> asyncio.Task[None]:
        """Reads the indexes of a segment, once for all that call it. The task may raise RemoteStoreError. No reader may cancel it.

        Raises TooManyReads.
        """
        name = _name(entry)
        return self._begun(entry, name, partial(self._load, entry, name))

    def load_open_transactions(self, segment: RemoteSegment) -> asyncio.Task[None]:
        """Sets the `first_open_offset` of a segment by its producer snapshot. Otherwise as `load`."""
        name = f"{_name(segment.entry)}.snapshot"
        return self._begun(segment.entry, name, partial(self._load_open_transactions, segment, name))

    def remove(self, entry: SegmentEntry) -> None:
        """Forgets a segment that is deleted."""
        name = _name(entry)
        self._segments.pop(name, None)
        self._evict(name)

    def distrust(self, entry: SegmentEntry) -> None:
        """Forgets the indexes of a segment, which do not fit its records. The next load makes them anew from the records."""
        self.remove(entry)
        self._wrong[_name(entry)] = None
        if len(self._wrong) > MAX_WRONG:
            self._wrong.popitem(last=False)

    async def close(self) -> None:
        """Ends what is being read, and makes the files durable for the next process."""
        for task in self._loads.values():
            task.cancel()
        await asyncio.gather(*self._loads.values(), return_exceptions=True)
        with contextlib.suppress(OSError):  # then the next process reads the indexes again
            await self._threads(self._make_durable)

    def _begun(self, entry: SegmentEntry, name: str, load: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        task = self._loads.get(name)
        if task is None:
            if len(self._loads) >= MOST_LOADS:
                raise TooManyReads
            task = self._loads[name] = asyncio.get_running_loop().create_task(load())
            task.add_done_callback(partial(self._on_loaded, entry, name))
        return task

    def _on_loaded(self, entry: SegmentEntry, name: str, task: asyncio.Task[None]) -> None:
        del self._loads[name]
        if not task.cancelled() and (error := task.exception()) is not None:  # asyncio would log it if all readers had left
            self.on_failure(entry, error)

    async def _load(self, entry: SegmentEntry, name: str) -> None:
        if name in self._removals:
            await self._removals[name]
        if name in self._on_disk:
            try:
                self._segments[name] = await self._threads(partial(self._reopen, entry))
                return
            except (OSError, CorruptIndex) as error:
                log.warning("%s; the indexes are read from the remote store again", error)
                self._evict(name)
                await self._removals[name]
        async with self._reading:
            parts, is_proved = await self._read(entry, name)
            if is_proved is not None:
                await self._keep(entry, name, parts, is_proved)
                return
        transactions = parts[2]
        del parts
        async with self._rebuilding:
            offset_index, time_index = await rebuild_indexes(entry, self._store, self._threads)
            await self._keep(entry, name, [offset_index, time_index, transactions], True)

    async def _read(self, entry: SegmentEntry, name: str) -> tuple[list[bytes], bool | None]:
        """The indexes in the order of KINDS, and whether checksums prove the first two. None if those are wrong."""
        parts = await asyncio.gather(*(self._fetch(entry, kind) for kind in KINDS))
        try:
            await self._threads(partial(check_index, entry, IndexKind.TRANSACTION, parts[2]))
        except CorruptIndex as error:  # the records of one segment do not tell where its transactions began
            raise RemoteStoreError(f"an index in the remote store is not that of its segment: {error}") from None
        if name in self._wrong:
            return parts, None
        try:
            return parts, await self._threads(partial(_are_proved, entry, parts))
        except CorruptIndex as error:
            log.warning("%s; it is made anew from the records", error)
            return parts, None

    async def _keep(self, entry: SegmentEntry, name: str, parts: list[bytes], is_proved: bool) -> None:
        """Writes the indexes to the disk, or keeps them in memory if that refuses them."""
        try:
            try:
                await self._leave_space(sum(map(len, parts)))
                await self._threads(partial(self._write, entry, parts))
                segment = await self._threads(partial(self._open, entry, is_proved))
                self._count(name, segment.index_bytes)
            except OSError as error:
                log.warning("%s: %s; these indexes stay in memory. Free space on this disk.", self._directory, error.strerror or error)
                held = HeldFiles({name + suffix: part for suffix, part in zip(SUFFIXES, parts, strict=True)})
                sizes = len(parts[0]), len(parts[1]), len(parts[2])
                segment = RemoteSegment(cast(FileSystem, held), name, entry, sizes, is_proved=is_proved)
        except CorruptIndex as error:
            raise RemoteStoreError(f"an index in the remote store is not that of its segment: {error}") from None
        self._segments[name] = segment
        self._make_room(self.limit)

    async def _load_open_transactions(self, segment: RemoteSegment, name: str) -> None:
        entry = segment.entry
        async with self._reading:
            data = await self._fetch(entry, IndexKind.PRODUCER_SNAPSHOT)
            try:
                segment.first_open_offset = await self._threads(partial(_first_open_offset, entry, data, name))
            except (CorruptIndex, CorruptSnapshot) as error:
                raise RemoteStoreError(str(error)) from None

    async def _fetch(self, entry: SegmentEntry, kind: IndexKind) -> bytes:
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                return await self._store.index(entry, kind)
        except TimeoutError:
            raise RemoteStoreError(f"no answer within {LOAD_SECONDS:.0f} s") from None

    # -- what goes -------------------------------------------------------------------------------------------------------

    def _count(self, name: str, size: int) -> None:
        self._on_disk[name] = size + SEGMENT_BYTES
        self.size += size + SEGMENT_BYTES

    async def yield_space(self) -> None:
        """Removes files while the disk has too little space for logs."""
        with contextlib.suppress(OSError):
            await self._leave_space(0)

    async def _leave_space(self, size: int) -> None:
        """Removes files if the disk has too little space for `size` bytes more. Raises OSError if it still has."""
        spare = await self._threads(partial(spare_bytes, self._filesystem, self._directory))
        if spare < size:
            self._make_room(self.size + spare - size)
            raise OSError(errno.ENOSPC, "the rest of the space is for logs")

    def _make_room(self, bound: int) -> None:
        while self.size > bound and len(self._on_disk) > 1:
            self._evict(next(iter(self._on_disk)))
        if len(self._segments) > len(self._on_disk):
            held = [name for name in self._segments if name not in self._on_disk]
            for name in held[:-MAX_HELD]:
                del self._segments[name]

    def _evict(self, name: str) -> None:
        size = self._on_disk.pop(name, None)
        if size is None:
            return
        self.size -= size
        self._segments.pop(name, None)
        removal = self._removals[name] = asyncio.ensure_future(self._threads(partial(self._unlink, name)))
        removal.add_done_callback(lambda _: self._removals.pop(name, None))

    # -- in threads ------------------------------------------------------------------------------------------------------

    def _make_durable(self) -> None:
        if self._filesystem.sync_everything(self._directory):
            self._filesystem.open(self._durable, create=True).close()

    def _reopen(self, entry: SegmentEntry) -> RemoteSegment:
        """Opens files of an earlier process. Raises CorruptIndex, also for indexes that were made anew: no checksum is known of those."""
        name = f"{self._directory}/{_name(entry)}"
        parts = [self._filesystem.read_file(name + suffix) for suffix in SUFFIXES]
        is_proved = _are_proved(entry, parts)
        check_index(entry, IndexKind.TRANSACTION, parts[2])
        return self._open(entry, is_proved)

    def _open(self, entry: SegmentEntry, is_proved: bool) -> RemoteSegment:
        name = f"{self._directory}/{_name(entry)}"
        sizes = [self._filesystem.size(name + suffix) for suffix in SUFFIXES]
        return RemoteSegment(self._filesystem, name, entry, (sizes[0], sizes[1], sizes[2]), is_proved=is_proved)

    def _write(self, entry: SegmentEntry, parts: list[bytes]) -> None:
        name = f"{self._directory}/{_name(entry)}"
        for suffix, data in zip(SUFFIXES, parts, strict=True):
            path = f"{name}{suffix}{TEMPORARY_SUFFIX}"
            file = self._filesystem.open(path, create=True)
            try:
                file.truncate(0)
                file.pwrite(data, 0)
            finally:
                file.close()
            self._filesystem.rename(path, name + suffix)

    def _unlink(self, name: str) -> None:
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError):
                self._filesystem.unlink(f"{self._directory}/{name}{suffix}")


def _ignore(entry: SegmentEntry, error: BaseException) -> None:
    pass


def _are_proved(entry: SegmentEntry, parts: Sequence[bytes]) -> bool:
    """Whether checksums prove the offset index and the time index. Raises CorruptIndex."""
    is_proved = True
    for kind, part in zip(KINDS[:2], parts, strict=False):
        is_proved &= check_index(entry, kind, part)
    return is_proved


def _first_open_offset(entry: SegmentEntry, snapshot: bytes, name: str) -> int:
    """Blocks: a snapshot may have a hundred thousand producers. Raises CorruptIndex, CorruptSnapshot."""
    check_index(entry, IndexKind.PRODUCER_SNAPSHOT, snapshot)
    return first_open_offset(snapshot, name)


def _name(entry: SegmentEntry) -> str:
    return f"{entry.start_offset}_{to_text(entry.id.uuid)}"
