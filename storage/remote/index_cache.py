"""Keeps the indexes of remote segments on the local disk, in Apache Kafka's folder and under its names.

`remote-log-index-cache/<base offset>_<segment uuid>` with the suffixes `.index`, `.timeindex` and `.txnindex`, within
`remote.log.index.file.cache.total.size.bytes`; the least recently used ones go first. Files of an earlier process are used again if that
was stopped in order, and if they can belong to their segment: without a sync a power cut may leave empty ones, which would pass. If the
disk refuses them, the indexes of the segment stay in memory, unless they are too large for a part of it.

The store writes indexes to files, so no index is in memory as a whole otherwise, however many aborted transactions a segment has. A load
takes its memory from that of all transfers (`MemoryBudget`).

An offset index or a time index that is not that of its segment is made anew from the records, one at a time for all segments.

Lives on the event loop; files are read, written and removed in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Final, TypeVar, cast

from ottla.protocol.uuid import to_text
from ottla.storage.disk.file_names import TEMPORARY_SUFFIX
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.free_space import spare_bytes
from ottla.storage.errors import CorruptIndex, CorruptSnapshot
from ottla.storage.producers.snapshot import first_open_offset
from ottla.storage.remote.chunk_loads import TooManyReads
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.held_files import HeldFiles
from ottla.storage.remote.index_checks import check_index, check_pieces, pieces_of
from ottla.storage.remote.memory_budget import MEMORY_SHARE, READ_COPIES, MemoryBudget
from ottla.storage.remote.ports import IndexKind, RemoteObjectDamaged, RemoteStore, RemoteStoreError
from ottla.storage.remote.record_walk import WALK_BYTES, rebuild_bytes, rebuild_indexes
from ottla.storage.remote.remote_segment import NONE_OPEN, SUFFIXES, RemoteSegment
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
"""Segments whose indexes are read from the store at the same time."""
MOST_LOADS: Final = 1000
"""Segments whose indexes are read, or wait for that."""
MAX_HELD: Final = 8
"""Segments whose indexes are in memory because the disk refuses them."""
WARNING_SECONDS: Final = 60.0
"""Time between two lines about a disk that refuses indexes."""
MAX_WRONG: Final = 1000
"""Segments that are known to have wrong indexes in the store."""

_Result = TypeVar("_Result")


class IndexCache:
    """The indexes of all segments that are read."""

    def __init__(
        self, filesystem: FileSystem, log_dir: str, limit: int, store: RemoteStore, budget: MemoryBudget, threads: Threads
    ) -> None:
        self._filesystem = filesystem
        self._directory = f"{log_dir}/{DIRECTORY}"
        self._durable = f"{log_dir}/{DURABLE}"
        self._store = store
        self._threads = threads
        self._budget = budget
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
        self._held: OrderedDict[str, int] = OrderedDict()
        """Name of a segment whose indexes are in memory -> their bytes."""
        self._attempts = count()
        self._reading = asyncio.Semaphore(MOST_READ)
        self._rebuilding = asyncio.Lock()
        budget.relieve_with(self._relieve)
        self._next_warning = 0.0

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
        self._let_go(name)
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
                async with self._reading, self._budget.reserved(self._store.save_bytes, is_read=True):
                    self._segments[name] = await self._threads(partial(self._reopen, entry))
                return
            except (OSError, CorruptIndex) as error:
                log.warning("%s; the indexes are read from the remote store again", error)
            self._evict(name)
            await self._removals[name]
        if name not in self._wrong:
            async with self._reading:
                if await self._get(entry, name, rebuilds=False):
                    return
        async with self._rebuilding:
            await self._get(entry, name, rebuilds=True)

    async def _get(self, entry: SegmentEntry, name: str, *, rebuilds: bool) -> bool:
        """Brings the indexes to the disk, or into memory if that refuses them. Returns False if they have to be made anew."""
        try:
            return await self._save(entry, name, rebuilds)
        except OSError as error:
            self._warn_of_disk(error)
        return await self._hold(entry, name, rebuilds)

    async def _save(self, entry: SegmentEntry, name: str, rebuilds: bool) -> bool:
        """Raises OSError if the disk refuses the indexes."""
        await self._leave_space(0)
        # A thread may still write the files of an attempt that was cancelled.
        prefix = f"{self._directory}/{name}.{next(self._attempts)}"
        paths = {kind: f"{prefix}{suffix}{TEMPORARY_SUFFIX}" for kind, suffix in zip(KINDS, SUFFIXES, strict=True)}
        try:
            async with self._budget.reserved(rebuild_bytes(entry) if rebuilds else self._store.save_bytes, is_read=True):
                wanted = {IndexKind.TRANSACTION: paths[IndexKind.TRANSACTION]} if rebuilds else paths
                await _in_time(self._store.save_indexes(entry, wanted))
                await self._check(partial(_check_transactions, self._filesystem, entry, paths))
                if rebuilds:
                    made = await rebuild_indexes(entry, self._store, self._threads)
                    await self._threads(partial(self._write, paths, made))
                    is_proved: bool | None = True
                else:
                    is_proved = await self._threads(partial(_is_proved, self._filesystem, entry, paths))
                if is_proved is None:
                    return False
                await self._leave_space(0)
                segment = await self._check(partial(self._open, entry, is_proved, paths))
        finally:
            await self._threads(partial(self._unlink_all, list(paths.values())))
        self._count(name, segment.index_bytes)
        self._segments[name] = segment
        self._make_room(self.limit)
        return True

    async def _hold(self, entry: SegmentEntry, name: str, rebuilds: bool) -> bool:
        sizes = [0 if rebuilds and kind is not IndexKind.TRANSACTION else await self._size(entry, kind) for kind in KINDS]
        held = sum(sizes) + (rebuild_bytes(entry) - WALK_BYTES) // 2 * rebuilds
        bound = self._budget.limit // MEMORY_SHARE
        if held > bound:
            raise RemoteStoreError(f"the indexes of {name} have {held} bytes, and only {bound} stay in memory while the disk refuses them")
        taken = READ_COPIES * held + WALK_BYTES * rebuilds
        await self._budget.take(taken, is_read=True)
        kept = 0
        try:
            parts = [await self._read(entry, kind, size) if size else b"" for kind, size in zip(KINDS, sizes, strict=True)]
            files = HeldFiles({name + suffix: part for suffix, part in zip(SUFFIXES, parts, strict=True)})
            paths = {kind: name + suffix for kind, suffix in zip(KINDS, SUFFIXES, strict=True)}
            filesystem = cast(FileSystem, files)
            await self._check(partial(_check_transactions, filesystem, entry, paths))
            is_proved: bool | None = True
            if rebuilds:
                for kind, made in zip(KINDS, await rebuild_indexes(entry, self._store, self._threads), strict=False):
                    files.put(paths[kind], made)
            else:
                is_proved = await self._threads(partial(_is_proved, filesystem, entry, paths))
            if is_proved is None:
                return False
            segment = await self._check(partial(_open, filesystem, name, entry, is_proved))
            kept = min(segment.index_bytes, taken)
        finally:
            self._budget.give_back(taken - kept)
        self._keep(name, segment, kept)
        return True

    def _keep(self, name: str, segment: RemoteSegment, size: int) -> None:
        self._let_go(name)
        self._held[name] = size
        self._segments[name] = segment
        self._budget.keep(size)
        while len(self._held) > MAX_HELD or (sum(self._held.values()) > self._budget.limit // MEMORY_SHARE and len(self._held) > 1):
            self._let_go(next(iter(self._held)))
        self._make_room(self.limit)

    def _warn_of_disk(self, error: OSError) -> None:
        """Writes one line a minute: the disk refuses the indexes of each segment that is read."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_warning:
            self._next_warning = now + WARNING_SECONDS
            log.warning("%s: %s; indexes stay in memory. Free space on this disk.", self._directory, error.strerror or error)

    async def _load_open_transactions(self, segment: RemoteSegment, name: str) -> None:
        entry = segment.entry
        async with self._reading:
            size = await self._size(entry, IndexKind.PRODUCER_SNAPSHOT)
            async with self._budget.reserved(READ_COPIES * size, is_read=True):
                data = await self._read(entry, IndexKind.PRODUCER_SNAPSHOT, size)
                try:
                    segment.first_open_offset = await self._threads(partial(_first_open_offset, entry, data, name))
                except (CorruptIndex, CorruptSnapshot) as error:
                    raise RemoteStoreError(str(error)) from None

    async def _size(self, entry: SegmentEntry, kind: IndexKind) -> int:
        return await _in_time(self._store.index_size(entry, kind))

    async def _read(self, entry: SegmentEntry, kind: IndexKind, most: int) -> bytes:
        return await _in_time(self._store.index(entry, kind, most))

    async def _check(self, work: Callable[[], _Result]) -> _Result:
        """Does work in a thread. An index that is not the segment's is an error of the store: nothing else has it."""
        try:
            return await self._threads(work)
        except CorruptIndex as error:
            raise RemoteObjectDamaged(f"an index in the remote store is not that of its segment: {error}") from None

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

    def _relieve(self) -> int:
        """Forgets the oldest indexes in memory."""
        if not self._held:
            return 0
        name, size = self._held.popitem(last=False)
        self._segments.pop(name, None)
        return size

    def _let_go(self, name: str) -> None:
        """Forgets indexes that are in memory."""
        size = self._held.pop(name, None)
        if size is not None:
            self._segments.pop(name, None)
            self._budget.drop(size)

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
        paths = {kind: name + suffix for kind, suffix in zip(KINDS, SUFFIXES, strict=True)}
        is_proved = _are_proved(self._filesystem, entry, paths)
        _check_transactions(self._filesystem, entry, paths)
        return _open(self._filesystem, name, entry, is_proved)

    def _open(self, entry: SegmentEntry, is_proved: bool, paths: Mapping[IndexKind, str]) -> RemoteSegment:
        """Gives new files the names that they keep, and opens them."""
        name = f"{self._directory}/{_name(entry)}"
        for path, suffix in zip(paths.values(), SUFFIXES, strict=True):
            self._filesystem.rename(path, name + suffix)
        try:
            return _open(self._filesystem, name, entry, is_proved)
        except CorruptIndex:
            self._unlink(_name(entry))
            raise

    def _write(self, paths: Mapping[IndexKind, str], indexes: tuple[bytes, bytes]) -> None:
        for kind, data in zip(KINDS, indexes, strict=False):
            file = self._filesystem.open(paths[kind], create=True)
            try:
                file.pwrite(data, 0)
            finally:
                file.close()

    def _unlink(self, name: str) -> None:
        self._unlink_all([f"{self._directory}/{name}{suffix}" for suffix in SUFFIXES])

    def _unlink_all(self, paths: list[str]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                self._filesystem.unlink(path)


async def _in_time(call: Awaitable[_Result]) -> _Result:
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            return await call
    except TimeoutError:
        raise RemoteStoreError(f"no answer within {LOAD_SECONDS:.0f} s") from None


def was_used_in(filesystem: FileSystem, log_dirs: Iterable[str]) -> bool:
    """Tells if a broker with one of these log directories has had a remote store. Blocks."""
    return any(filesystem.exists(f"{each}/{DIRECTORY}") for each in log_dirs)


def _ignore(entry: SegmentEntry, error: BaseException) -> None:
    pass


def _open(filesystem: FileSystem, name: str, entry: SegmentEntry, is_proved: bool) -> RemoteSegment:
    sizes = [filesystem.size(name + suffix) for suffix in SUFFIXES]
    return RemoteSegment(filesystem, name, entry, (sizes[0], sizes[1], sizes[2]), is_proved=is_proved)


def _check_transactions(filesystem: FileSystem, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
    """Raises CorruptIndex: the records of one segment do not tell where its transactions began."""
    check_pieces(entry, IndexKind.TRANSACTION, pieces_of(filesystem, paths[IndexKind.TRANSACTION]))


def _are_proved(filesystem: FileSystem, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> bool:
    """Whether checksums prove the offset index and the time index. Raises CorruptIndex."""
    is_proved = True
    for kind in KINDS[:2]:
        is_proved &= check_pieces(entry, kind, pieces_of(filesystem, paths[kind]))
    return is_proved


def _is_proved(filesystem: FileSystem, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> bool | None:
    """The same; None if they are wrong, and have to be made anew."""
    try:
        return _are_proved(filesystem, entry, paths)
    except CorruptIndex as error:
        log.warning("%s; it is made anew from the records", error)
        return None


def _first_open_offset(entry: SegmentEntry, snapshot: bytes, name: str) -> int:
    """Blocks: a snapshot may have a hundred thousand producers. Raises CorruptIndex, CorruptSnapshot."""
    check_index(entry, IndexKind.PRODUCER_SNAPSHOT, snapshot)
    found = first_open_offset(snapshot, name)
    return NONE_OPEN if found is None else found


def _name(entry: SegmentEntry) -> str:
    return f"{entry.start_offset}_{to_text(entry.id.uuid)}"
