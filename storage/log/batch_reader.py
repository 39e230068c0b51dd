"""Finds the regions of segments' files that answer reads of a log.

Each `PartitionLog` has one `BatchReader`. It remembers the ends of recent reads and the bytes at which the next batches begin (`hints`). So
it needs no disk access for a sequential reader. The same hints give the position of the high watermark, because it moves to offsets at
which followers have read. Invariant of a hint `offset -> (segment, position)`: the first batch that ends at or after `offset` begins at
`position`, or the segment ends there.
"""

from typing import final

from ottla.protocol.records.batch import HEADER_SIZE
from ottla.storage.disk.filesystem import File
from ottla.storage.disk.real_file import SMALL_BYTES
from ottla.storage.log.reads import MAX_HINTS, FetchSlice
from ottla.storage.remote.held_files import HeldFile
from ottla.storage.segment.batch_finder import CHUNK_BYTES, INLINE_BYTES, BatchFinder
from ottla.storage.segment.cold_lookups import UnwaitingFile, unwaiting_file
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.segment import Segment


@final
class BatchReader:
    """Finds batches in the segments of one log, and remembers where reads ended."""

    __slots__ = ("_segments", "hints")

    def __init__(self, segments: LogSegments) -> None:
        self._segments = segments
        self.hints = segments.hints

    def find(
        self, active: Segment, log_end_offset: int, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, may_wait: bool
    ) -> FetchSlice:
        """Whole batches below `end_offset`, from the one that holds `offset` on. `active` is the last segment. See `PartitionLog.read`.

        Raises NotCached, OSError, RecordFormatError.
        """
        ahead = max_bytes if HEADER_SIZE < max_bytes <= INLINE_BYTES else CHUNK_BYTES
        finder: BatchFinder | None = None
        hint = self.hints.get(offset)
        if hint is not None and hint[1] < hint[0].size:
            segment, position = hint
        else:
            # A sequential reader finds its next regions this way, too, until it is near the end, where hints exist.
            finder = self._locate(active, offset, ahead, may_wait)
            if finder is None:
                return FetchSlice(None, offset)
            segment = finder.segment
            position = finder.position
        next_offset = end_offset
        higher = None if segment is active else self._segments.higher(segment.base_offset)
        if higher is None and end_offset == log_end_offset:
            limit = segment.size
        elif higher is not None and end_offset >= higher.base_offset:
            limit = segment.size
            next_offset = higher.base_offset
        else:
            limit = self._position_of(active, segment, end_offset, may_wait)
        length = limit - position
        if length <= 0:
            return FetchSlice(None, offset)
        end_is_cached = False
        if length > max_bytes:
            if finder is None:
                finder = segment.finder(file_of(active, segment, may_wait))
                if not finder.seek(position, ahead):
                    return FetchSlice(None, offset)
            length = finder.fit(max_bytes)
            if length:
                next_offset = finder.next_offset
                end_is_cached = finder.has_read(position + length)
            elif min_one_batch and max_bytes >= 0:
                length = finder.end - position
                next_offset = finder.last_offset + 1
            else:
                return FetchSlice(None, offset)
        if next_offset not in self.hints:
            self._remember(next_offset, segment, position + length)
        begun = None if finder is None else finder.read_of(position, length)
        file = segment.file
        if segment.filesystem.is_scarce(file):  # 0.1 µs
            # An answer may wait for its client for long, and must not hold one of the last files meanwhile. It has few records, in memory.
            if not min_one_batch:
                return FetchSlice(None, offset)
            if length > SMALL_BYTES and max_bytes > SMALL_BYTES:
                return self.find(active, log_end_offset, offset, SMALL_BYTES, end_offset, min_one_batch, may_wait)
            data = file_of(active, segment, may_wait).pread(length, position)
            return FetchSlice(FileRegion(HeldFile(segment.path, data), 0, length, True, data), next_offset)  # type: ignore[arg-type]  # it is only read
        return FetchSlice(FileRegion(file, position, length, end_is_cached, begun), next_offset)

    def _locate(self, active: Segment, offset: int, ahead: int, may_wait: bool) -> BatchFinder | None:
        """A finder at the batch with `offset`, or at the one after a gap. Raises NotCached."""
        segment: Segment | None = active
        if offset < active.base_offset:
            segment = self._segments.floor(offset)
        while segment is not None:
            finder = segment.finder(file_of(active, segment, may_wait))
            if finder.locate(offset, ahead):
                return finder
            segment = self._segments.higher(segment.base_offset)
        return None

    def _position_of(self, active: Segment, segment: Segment, end_offset: int, may_wait: bool) -> int:
        """The position in `segment` up to which all batches end below `end_offset`."""
        hint = self.hints.get(end_offset)
        if hint is not None and hint[0] is segment:
            return hint[1]
        finder = segment.finder(file_of(active, segment, may_wait))
        position = finder.position if finder.locate(end_offset, HEADER_SIZE) else segment.size
        self._remember(end_offset, segment, position)
        return position

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self.hints
        if len(hints) >= MAX_HINTS:
            del hints[next(iter(hints))]
        hints[offset] = (segment, position)


def file_of(active: Segment, segment: Segment, may_wait: bool) -> File | UnwaitingFile:
    """The file through which lookups read `segment` of a log with this active segment. Raises NotCached."""
    return segment.file if may_wait or segment is active else unwaiting_file(segment)
