"""Reads records of segments in the remote store, from the caches: at once, or by what says how to get what is missing.

A read that finds something missing raises `NotHere`. Its `load` begins to read that, and the read is repeated when it is done, as a read
of cold pages is repeated. A sequential reader has the next chunks read ahead: 1, 2, 4, then 8 of them, also those of the next segment.

Lives on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from ottla.protocol.records.batch import HEADER_SIZE
from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.remote.chunk_cache import ChunkCache
from ottla.storage.remote.chunk_file import ChunkFile, MissingChunk, PresentBytes
from ottla.storage.remote.chunk_loads import ChunkLoads, TooManyReads
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.held_files import HeldFile
from ottla.storage.remote.index_cache import IndexCache
from ottla.storage.remote.ports import RemoteStoreError
from ottla.storage.remote.remote_segment import RemoteSegment
from ottla.storage.segment.batch_finder import CHUNK_BYTES, INLINE_BYTES, BatchFinder
from ottla.storage.segment.cold_lookups import UnwaitingFile
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.record_search import FoundRecords
from ottla.storage.segment.segment import NEVER, RecordPosition
from ottla.storage.segment.transaction_index import AbortedTransaction, Walk

MOST_AHEAD: Final = 8
"""Chunks that are read ahead for one reader."""
MOST_READERS: Final = 1000
"""Readers whose places are remembered, to know the sequential ones."""


class NotHere(Exception):
    """A read needs what is not on this broker. `load(reader)` begins to get it; its future ends then, or with RemoteStoreError.

    `load` raises TooManyReads.
    """

    def __init__(self, load: Callable[[Hashable], asyncio.Future[None]]) -> None:
        super().__init__()
        self.load = load


class RemoteSlice(NamedTuple):
    """Whole batches of one segment, or none. `next_offset` follows the last batch."""

    region: FileRegion | None
    next_offset: int


class _Place:
    """The last read of a reader, and how many chunks are read ahead for it."""

    __slots__ = ("ahead", "next_offset", "offset")

    def __init__(self) -> None:
        self.offset = self.next_offset = -1
        self.ahead = 0


class SegmentReader:
    """Reads all remote segments of a broker. Its methods raise NotHere, NotCached unless they `may_wait`, and RemoteStoreError."""

    def __init__(self, filesystem: FileSystem, indexes: IndexCache, chunks: ChunkCache, loads: ChunkLoads) -> None:
        self._filesystem = filesystem
        self._indexes = indexes
        self._chunks = chunks
        self._loads = loads
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()

    def read(
        self, entry: SegmentEntry, offset: int, max_bytes: int, min_one_batch: bool, may_wait: bool, end_offset: int = NEVER
    ) -> RemoteSlice:
        """Finds whole batches that are here, from the one that holds `offset` on: at most `max_bytes`, or one batch if `min_one_batch`.

        `end_offset` is the end of a batch behind which none is wanted. Without a batch at or behind `offset` the next one is that behind
        the segment.
        """
        segment = self._segment(entry)
        chunks = self._chunks.find(entry) or ChunkFile(None, entry, self._chunks.chunk_bytes)
        if not may_wait:
            segment.offset_index.check_cached()
        finder = segment.finder(self._view(chunks, may_wait, is_whole=False))  # type: ignore[arg-type]  # it only reads
        try:
            if not finder.locate(offset, max_bytes if HEADER_SIZE < max_bytes <= INLINE_BYTES else CHUNK_BYTES):
                return RemoteSlice(None, entry.end_offset + 1)
            position = finder.position
            length, next_offset = _fitting(finder, chunks, max_bytes, min_one_batch), finder.next_offset
            if end_offset < next_offset:
                finder.locate(end_offset, HEADER_SIZE)
                length, next_offset = finder.position - position, end_offset
        except MissingChunk as missing:
            raise self._chunk_not_here(segment, missing.number, segment.offset_index.lookup(offset).position + max_bytes) from None
        except (CorruptIndex, RecordFormatError) as error:
            raise self._corrupt(entry, error) from error
        if not length:
            return RemoteSlice(None, offset)
        kept = chunks.read(position, length)
        if kept is not None:
            region = FileRegion(HeldFile("", kept), 0, length, begun=kept)  # type: ignore[arg-type]  # it is only read
        else:
            assert chunks.file is not None  # otherwise all that is present is in memory
            region = FileRegion(chunks.file, position, length, begun=finder.read_of(position, length))
        return RemoteSlice(region, next_offset)

    def read_ahead(self, entry: SegmentEntry, offset: int, found: RemoteSlice, reader: Hashable, following: SegmentEntry | None) -> None:
        """Reads what comes after `found`, the result of a read at `offset`, if the reader has read what comes before it.

        `following` is the next segment.
        """
        place = self._places.get(reader)
        if place is None:
            place = self._places[reader] = _Place()
            if len(self._places) > MOST_READERS:
                self._places.popitem(last=False)
        if offset != place.offset:  # otherwise an answer is read again
            # A reader that begins where a segment does has most likely come to read all of it.
            is_sequential = offset == (place.next_offset if place.offset >= 0 else entry.start_offset)
            place.ahead = min(max(1, 2 * place.ahead), MOST_AHEAD) if is_sequential else 0
            place.offset = offset
        place.next_offset = found.next_offset
        segment = self._indexes.find(entry)
        chunks = self._chunks.find(entry)
        region = found.region
        if not place.ahead or segment is None or chunks is None or region is None or region.file is not chunks.file:
            return  # also while the disk refuses chunks
        last = (region.position + region.length - 1) // self._chunks.chunk_bytes
        left = self._ahead_in(segment, chunks, last + 1, place.ahead)
        if left and following is not None:
            segment = self._indexes.find(following)
            if segment is None:
                with suppress(TooManyReads):
                    self._indexes.load(following)
            else:
                self._ahead_in(segment, self._chunks.find(following), 0, left)

    def find_by_timestamp(
        self, entry: SegmentEntry, timestamp_ms: int, starting_offset: int, may_wait: bool, found: FoundRecords | None
    ) -> RecordPosition | None:
        """Finds the first record at or after `starting_offset` with a timestamp of at least `timestamp_ms`."""
        segment = self._segment(entry)
        chunks = self._chunks.find(entry) or ChunkFile(None, entry, self._chunks.chunk_bytes)
        if not may_wait:
            segment.time_index.check_cached()
            segment.offset_index.check_cached()
        try:
            view = self._view(chunks, may_wait, is_whole=True)
            return segment.find_by_timestamp(timestamp_ms, starting_offset, view, found)  # type: ignore[arg-type]  # it only reads
        except MissingChunk as missing:
            raise self._chunk_not_here(segment, missing.number, 0) from None
        except (CorruptIndex, RecordFormatError) as error:
            raise self._corrupt(entry, error) from error

    def aborted_transactions(
        self, entry: SegmentEntry, start: int, end: int, walk: Walk | None, at_most: int = NEVER
    ) -> tuple[list[AbortedTransaction], bool]:
        """Finds the transactions of one segment that overlap `[start, end)`, and whether later segments have no more of them.

        Returns only the first `at_most` of them. With a `walk` it does not wait for the disk.
        """
        segment = self._segment(entry)
        try:
            found, is_complete = segment.aborted_transactions(start, end, at_most, walk)
        except CorruptIndex as error:
            raise self._corrupt(entry, error) from error
        if not is_complete and len(found) < at_most:
            if segment.first_open_offset is None:
                raise NotHere(lambda _: self._indexes.load_open_transactions(segment))
            is_complete = segment.first_open_offset >= end
        return found, is_complete

    def forget(self, entry: SegmentEntry) -> None:
        """Removes what is kept of a segment that is deleted."""
        self._indexes.remove(entry)
        self._chunks.remove(entry)

    async def yield_space(self) -> None:
        """Removes cached files while the disk has too little space for logs."""
        await self._chunks.yield_space()
        await self._indexes.yield_space()

    async def close(self) -> None:
        """Ends all reads from the store."""
        await self._loads.close()
        await self._indexes.close()
        await self._chunks.close()

    # -- what is missing -------------------------------------------------------------------------------------------------

    def _segment(self, entry: SegmentEntry) -> RemoteSegment:
        segment = self._indexes.find(entry)
        if segment is None:
            raise NotHere(lambda _: self._indexes.load(entry))
        return segment

    def _view(self, chunks: ChunkFile, may_wait: bool, *, is_whole: bool) -> PresentBytes:
        file = chunks.file
        return PresentBytes(chunks, file if file is None or may_wait else UnwaitingFile(file, self._filesystem), is_whole)

    def _chunk_not_here(self, segment: RemoteSegment, number: int, end: int) -> NotHere:
        """Names the chunk that a read needs first. Those behind it, up to the `end` of the read, are read at the same time."""
        return NotHere(partial(self._load_chunks, segment, number, end))

    def _load_chunks(self, segment: RemoteSegment, number: int, end: int, reader: Hashable) -> asyncio.Future[None]:
        done = self._loads.want(segment.entry, number, self._first_batch(segment, number), reader)
        behind = -(-end // self._chunks.chunk_bytes) - number - 1
        self._ahead_in(segment, self._chunks.find(segment.entry), number + 1, min(behind, MOST_AHEAD))
        return done

    def _first_batch(self, segment: RemoteSegment, number: int) -> int | None:
        size = self._chunks.chunk_bytes
        return segment.first_batch_in(number * size, (number + 1) * size)

    def _ahead_in(self, segment: RemoteSegment, chunks: ChunkFile | None, number: int, count: int) -> int:
        """Reads up to `count` chunks from `number` on. Returns how many are left for the next segment."""
        last = -(-segment.size // self._chunks.chunk_bytes)
        for each in range(number, min(number + count, last)):
            if chunks is None or each not in chunks.present:
                self._loads.read_ahead(segment.entry, each, self._first_batch(segment, each))
        return max(0, number + count - last)

    def _corrupt(self, entry: SegmentEntry, error: Exception) -> RemoteStoreError:
        """Forgets what cannot be right, so that it is read or made anew. Returns the error for this read."""
        self._indexes.distrust(entry)
        self._chunks.remove(entry)
        partition = entry.id.partition
        return RemoteStoreError(f"the remote segment of {partition.topic}-{partition.partition} at offset {entry.start_offset}: {error}")


def _fitting(finder: BatchFinder, chunks: ChunkFile, max_bytes: int, min_one_batch: bool) -> int:
    """Returns the size of the batches from the current one on that are present and fit; 0 if the first one is too large.

    Sets the finder's `next_offset`. Raises MissingChunk when the first batch is not present as a whole.
    """
    position, end = finder.position, finder.end
    present = chunks.present_to(position)
    limit = max_bytes
    if present < chunks.size:
        limit = min(limit, present - position - HEADER_SIZE)  # the search reads the header behind the limit
    if limit > 0 and (length := finder.fit(limit)):
        return length
    if end - position > max_bytes and not (min_one_batch and max_bytes >= 0):
        return 0
    if present < end:
        raise MissingChunk(present // chunks.chunk_bytes)
    return finder.fit(end - position)
