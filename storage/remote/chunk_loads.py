"""Reads chunks of remote segments from the store into the cache: each once, however many readers want it.

Demand comes before read-ahead, and readers have turns: a reader that wants many partitions does not delay the others. A chunk is read when
fewer than `most_running` are, there is room for it in memory, and the quota allows it. A read that was begun is completed even if its
reader has left: the chunk is in the cache for the next fetch.

Lives on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from ottla.storage.remote.batch_checks import CorruptChunk
from ottla.storage.remote.chunk_cache import ChunkCache
from ottla.storage.remote.entries import SegmentEntry, SegmentId
from ottla.storage.remote.held_chunks import ChunkSource, HeldChunk
from ottla.storage.remote.memory_budget import MemoryBudget
from ottla.storage.remote.ports import UNREADABLE, RemoteStoreError

log = logging.getLogger(__name__)

MOST_WRONG: Final = 1000
"""Segments with a wrong chunk that are remembered."""
_INDEXES: Final = -1
"""Stands for the number of a chunk if the indexes are missing. They are read before all chunks."""
FETCH_SECONDS: Final = 60.0
"""Time after which a read of one chunk has failed, whatever the store does."""


class ByteQuota(Protocol):
    """Limits bytes a second."""

    def reserve(self, size: int) -> float:
        """Takes the bytes and returns 0, or takes none and returns the seconds after which to ask again."""

    def give_back(self, size: int) -> None:
        """Returns bytes that were not transferred."""


class TooManyReads(Exception):
    """As many reads as may wait do so: `remote.log.reader.max.pending.tasks`."""


class FetchCounts(Protocol):
    """Counts what is read from the store for one topic."""

    remote_fetch_requests: int
    remote_fetch_bytes: int
    remote_fetch_errors: int


class _Load:
    """A chunk that is being read, or waits for that."""

    __slots__ = ("done", "entry", "first_batch", "is_ahead", "number")

    def __init__(self, entry: SegmentEntry, number: int, first_batch: int | None, is_ahead: bool, done: asyncio.Future[None]) -> None:
        self.entry = entry
        self.number = number
        self.first_batch = first_batch
        self.is_ahead = is_ahead
        self.done = done


class ChunkLoads:
    """The reads of chunks of one broker."""

    def __init__(
        self,
        source: ChunkSource,
        cache: ChunkCache,
        budget: MemoryBudget,
        quota: ByteQuota,
        counts: Callable[[str], FetchCounts],
        *,
        most_running: int,
        most_waiting: int,
    ) -> None:
        self._source = source
        self._cache = cache
        self._budget = budget
        self._quota = quota
        self._counts = counts
        self._most_running = most_running
        self._most_waiting = most_waiting
        self._loads: dict[tuple[bytes, int], _Load] = {}
        """All that are running or waiting."""
        self._wanted: OrderedDict[Hashable, deque[_Load]] = OrderedDict()
        """Reader -> what it waits for; the first reader is served next."""
        self._ahead: deque[_Load] = deque()
        self._wrong: OrderedDict[SegmentId, int] = OrderedDict()
        """Segment -> number of a chunk that was missing, or not what was copied. Nothing is read ahead there: it costs the right ones.
        """
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self.waiting = 0
        """Reads on demand that have not begun: RemoteLogReaderTaskQueueSize."""
        self.throttles = 0
        """How often a read had to wait for the quota."""
        self.throttled_seconds = self.longest_throttle_seconds = 0.0
        self.on_read: Callable[[float], None] = _ignore
        """Called after each read of a chunk, also one that failed, with the seconds that it took."""
        budget.call_on_room(self._begin_some)

    @property
    def running(self) -> int:
        """Returns the number of chunks that are being read."""
        return len(self._tasks)

    @property
    def idle_share(self) -> float:
        """Returns the part of the reads that could run and do not: 1 if none does."""
        return 1 - len(self._tasks) / self._most_running

    @property
    def wrong_segments(self) -> list[SegmentId]:
        """Returns the segments of which a chunk was missing, or not what was copied, when it was read the last time."""
        return list(self._wrong)

    def note_wrong(self, entry: SegmentEntry, number: int = _INDEXES) -> None:
        """Remembers that a chunk of the segment, or its indexes, cannot be read, until that is read."""
        self._wrong[entry.id] = number
        if len(self._wrong) > MOST_WRONG:
            self._wrong.popitem(last=False)

    def want(self, entry: SegmentEntry, number: int, first_batch: int | None, reader: Hashable) -> asyncio.Future[None]:
        """Reads a chunk for a reader. The future ends when it is present, or with RemoteStoreError. No reader may cancel it.

        Raises TooManyReads.
        """
        load = self._loads.get((entry.id.uuid, number))
        if load is None:
            if self.waiting >= self._most_waiting:
                raise TooManyReads
            load = self._add(entry, number, first_batch, False)
        elif load.is_ahead and load in self._ahead:
            self._ahead.remove(load)
        else:
            return load.done
        load.is_ahead = False
        self._wanted.setdefault(reader, deque()).append(load)
        self.waiting += 1
        self._begin_some()
        return load.done

    def read_ahead(self, entry: SegmentEntry, number: int, first_batch: int | None) -> None:
        """Reads a chunk that a reader will want, when no reader waits for another. Does nothing if too many wait already."""
        if entry.id in self._wrong:
            return
        if (entry.id.uuid, number) not in self._loads and len(self._ahead) < self._most_waiting:
            self._ahead.append(self._add(entry, number, first_batch, True))
            self._begin_some()

    async def close(self) -> None:
        """Ends all reads."""
        if self._retry is not None:
            self._retry.cancel()
        self._wanted.clear()
        self._ahead.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for load in self._loads.values():
            load.done.cancel()
        self._loads.clear()

    def _add(self, entry: SegmentEntry, number: int, first_batch: int | None, is_ahead: bool) -> _Load:
        done = asyncio.get_running_loop().create_future()
        done.add_done_callback(_retrieve)
        load = self._loads[entry.id.uuid, number] = _Load(entry, number, first_batch, is_ahead, done)
        return load

    def _begin_some(self) -> None:
        """Begins as many reads as may run."""
        while len(self._tasks) < self._most_running and (self._wanted or self._ahead):
            load = next(iter(self._wanted.values()))[0] if self._wanted else self._ahead[0]
            size = self._size(load)
            if not self._budget.try_take(size):
                return
            delay = self._quota.reserve(size)
            if delay > 0:
                self._budget.used -= size  # nothing was done with it: no other is called
                self._wait_for_quota(delay)
                return
            self._take(load)
            task = asyncio.get_running_loop().create_task(self._run(load, size))
            self._tasks.add(task)
            task.add_done_callback(self._on_ended)

    def _wait_for_quota(self, delay: float) -> None:
        if self._retry is None:
            self.throttles += 1
            self.throttled_seconds += delay
            self.longest_throttle_seconds = max(self.longest_throttle_seconds, delay)
            self._retry = asyncio.get_running_loop().call_later(delay, self._on_quota)

    def _on_quota(self) -> None:
        self._retry = None
        self._begin_some()

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._begin_some()

    def _take(self, load: _Load) -> None:
        """Takes a load out of its queue; its reader has the next turn after the others."""
        if load.is_ahead:
            self._ahead.popleft()
            return
        self.waiting -= 1
        reader, loads = self._wanted.popitem(last=False)
        loads.popleft()
        if loads:
            self._wanted[reader] = loads

    def _size(self, load: _Load) -> int:
        chunk_bytes = self._cache.chunk_bytes
        return min(chunk_bytes, load.entry.size - load.number * chunk_bytes)

    async def _run(self, load: _Load, size: int) -> None:
        entry = load.entry
        counts = self._counts(entry.id.partition.topic)
        start = load.number * self._cache.chunk_bytes
        keeps_memory = False
        chunk: HeldChunk | None = None
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            counts.remote_fetch_requests += 1
            chunk = await self._fetch(entry, start, size)
            counts.remote_fetch_bytes += size
            keeps_memory = await self._cache.put(entry, load.number, chunk, load.first_batch)
            if self._wrong.get(entry.id) in (load.number, _INDEXES):
                del self._wrong[entry.id]
            load.done.set_result(None)
        except CorruptChunk as error:
            self.note_wrong(entry, load.number)
            self._fail(load, counts, RemoteStoreError(f"a remote segment of {_name(entry)} is not what was copied: {error}"))
        except RemoteStoreError as error:
            if isinstance(error, UNREADABLE):
                self.note_wrong(entry, load.number)
            self._fail(load, counts, error)
        except asyncio.CancelledError:
            load.done.cancel()
            raise
        except Exception as error:
            log.exception("unexpected error while a chunk of %s is read from the remote store", _name(entry))
            self._fail(load, counts, RemoteStoreError(str(error)))
        finally:
            if chunk is not None:
                chunk.drop()
            self.on_read(clock() - began)
            self._loads.pop((entry.id.uuid, load.number), None)
            self._budget.give_back(0 if keeps_memory else size)

    async def _fetch(self, entry: SegmentEntry, start: int, size: int) -> HeldChunk:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                return await self._source.hold(entry, start, start + size)
        except BaseException as error:
            self._quota.give_back(size)
            if isinstance(error, TimeoutError):
                raise RemoteStoreError(f"no answer within {FETCH_SECONDS:.0f} s") from None
            raise

    def _fail(self, load: _Load, counts: FetchCounts, error: RemoteStoreError) -> None:
        counts.remote_fetch_errors += 1
        load.done.set_exception(error)


def _ignore(seconds: float) -> None:
    pass


def _name(entry: SegmentEntry) -> str:
    return f"{entry.id.partition.topic}-{entry.id.partition.partition} at offset {entry.start_offset}"


def _retrieve(done: asyncio.Future[None]) -> None:
    """Looks at the exception, which asyncio would log if all readers had left."""
    if not done.cancelled():
        done.exception()
