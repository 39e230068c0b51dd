"""Reading from a log: methods of `PartitionLog`, kept in a file of their own.

A read is a region of a segment's file, found without touching the disk when the reader is sequential: the log remembers, for the ends
of recent reads, the byte at which the next one begins. The same places tell where the high watermark lies, for it moves to where
followers have read.

Invariant of a hint `offset -> (segment, position)`: the first batch that ends at or after `offset` begins at `position`, or the segment
ends there.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.records.errors import RecordFormatError
from storage.disk.filesystem import File
from storage.errors import CorruptRecord, OffsetOutOfRange
from storage.segment.batch_scan import header_at
from storage.segment.cold_lookups import ColdRead, NotCached, UnwaitingFile, check_time_cached, unwaiting_file
from storage.segment.file_region import FileRegion
from storage.segment.search import RecordPosition
from storage.segment.segment import Segment
from storage.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

MAX_HINTS = 64
MAX_UNKNOWN = 20
"""Segments whose largest timestamp is not known yet, that one turn of the event loop looks at."""


class FetchSlice(NamedTuple):
    """Whole batches for one fetch; `next_offset` follows the last of them."""

    region: FileRegion | None
    next_offset: int


_new: Final[Callable[[type[FetchSlice], tuple[FileRegion, int]], FetchSlice]] = tuple.__new__
"""Without the constructor of a named tuple, which is a Python function."""


class OffsetAndTimestamp(NamedTuple):
    """The answer to a search by timestamp. `leader_epoch` is -1 when the batch does not say."""

    offset: int
    timestamp: int
    leader_epoch: int


def read(self: "PartitionLog", offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, may_wait: bool = True) -> FetchSlice:
    """Whole batches from the one that holds `offset`, below `end_offset`, at most `max_bytes`; `min_one_batch` lets the first be larger.

    May begin with records before `offset`. Raises OffsetOutOfRange, CorruptRecord, LogDirFailure; ColdRead unless it `may_wait` for
    the disk while it looks for them.
    """
    log_end_offset = self.log_end_offset
    if not self.log_start_offset <= offset <= log_end_offset:
        raise OffsetOutOfRange(self.topic_partition, offset, self.log_start_offset, log_end_offset)
    end_offset = end_offset if end_offset < log_end_offset else log_end_offset
    if offset >= end_offset:
        return FetchSlice(None, offset)
    hints = self.read_hints
    hint = hints.get(offset)
    active = self.active_segment
    file: File | UnwaitingFile | None = None  # how lookups read the segment, once one had to
    try:
        if hint is not None and hint[1] < hint[0].size:
            segment, position = hint
        else:
            if end_offset == log_end_offset and offset >= active.base_offset:
                # No hint is left: who reads on finds the next region this way, too, until the end is near.
                indexed = active.between_entries(offset, max_bytes)
                if indexed is not None:
                    return _new(FetchSlice, indexed)
            found = _find(self, offset, may_wait)
            if found is None:
                return FetchSlice(None, offset)
            segment, position, file = found
        next_offset = end_offset
        if segment is active:
            limit = segment.size if end_offset == log_end_offset else _position_of(self, segment, end_offset, None)
        else:
            higher = self.segments.higher(segment.base_offset)
            if higher is not None and end_offset >= higher.base_offset:
                limit = segment.size
                next_offset = higher.base_offset
            else:
                limit = _position_of(self, segment, end_offset, file or _file_of(self, segment, may_wait))
        length = limit - position
        end_is_cached = False
        if length > max_bytes:
            if file is None:
                file = _file_of(self, segment, may_wait)
            end, next_offset = segment.whole_batches_end(position, position + max_bytes, file)
            length = end - position
            if length:
                end_is_cached = True  # the header that begins there was read
            else:
                header = header_at(file, position, segment.size)
                if header is None or not min_one_batch or max_bytes < 0:
                    return FetchSlice(None, offset)
                length = header.size
                next_offset = header.next_offset
        elif length <= 0:
            return FetchSlice(None, offset)
        if next_offset not in hints:
            _remember(hints, next_offset, segment, position + length)
        return _new(FetchSlice, (FileRegion(segment.file, position, length, end_is_cached), next_offset))
    except NotCached as cold:
        raise ColdRead(self.topic_partition, cold) from None
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    except RecordFormatError as error:
        raise CorruptRecord(self.topic_partition, f"at offset {offset}: {error}") from None


def _file_of(self: "PartitionLog", segment: Segment, may_wait: bool) -> File | UnwaitingFile:
    """How lookups read the segment. Raises NotCached."""
    return segment.file if may_wait or segment is self.active_segment else unwaiting_file(segment)


def _find(self: "PartitionLog", offset: int, may_wait: bool) -> tuple[Segment, int, File | UnwaitingFile] | None:
    """The segment, the position in it, and how it was read."""
    segment = self.segments.floor(offset)
    while segment is not None:
        file = segment.file if may_wait or segment is self.active_segment else unwaiting_file(segment)
        position = segment.locate(offset, file)
        if position is not None:
            return segment, position, file
        segment = self.segments.higher(segment.base_offset)
    return None


def _position_of(self: "PartitionLog", segment: Segment, end_offset: int, file: File | UnwaitingFile | None) -> int:
    """Where the batches of `segment` that end below `end_offset` end."""
    hint = self.read_hints.get(end_offset)
    if hint is not None and hint[0] is segment:
        return hint[1]
    position = segment.locate(end_offset, file)
    if position is None:
        position = segment.size
    _remember(self.read_hints, end_offset, segment, position)
    return position


def _remember(hints: dict[int, tuple[Segment, int]], offset: int, segment: Segment, position: int) -> None:
    if len(hints) >= MAX_HINTS:
        del hints[next(iter(hints))]
    hints[offset] = (segment, position)


def offset_for_timestamp(self: "PartitionLog", timestamp_ms: int, may_wait: bool = True) -> OffsetAndTimestamp | None:
    """The first record whose timestamp is at least `timestamp_ms`; None if there is none. Reads the disk, decompresses one batch.

    Raises CorruptRecord, LogDirFailure; ColdRead unless it `may_wait`.
    """
    try:
        unknown = 0
        for segment in self.segments:
            if not may_wait and segment is not self.active_segment and segment.size and not segment.knows_max_timestamp:
                unknown += 1
                _check_unknown(segment, unknown)
            # The cleaner leaves empty segments, and batches without their youngest record; Apache Kafka ends its search there.
            if segment.size and segment.largest_timestamp >= timestamp_ms:
                if not may_wait and segment is not self.active_segment:
                    check_time_cached(segment)
                found = segment.find_by_timestamp(timestamp_ms, self.log_start_offset, _file_of(self, segment, may_wait))
                if found is not None:
                    return _answer(found)
    except NotCached as cold:
        raise ColdRead(self.topic_partition, cold) from None
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    except RecordFormatError as error:
        raise CorruptRecord(self.topic_partition, str(error)) from None
    return None


def offset_of_max_timestamp(self: "PartitionLog", may_wait: bool = True) -> OffsetAndTimestamp | None:
    """The first record that has the largest timestamp of the log; None if no record has one. Reads the disk, decompresses one batch.

    Raises CorruptRecord, LogDirFailure; ColdRead unless it `may_wait`.
    """
    try:
        unknown = 0
        for each in self.segments:
            if not may_wait and each is not self.active_segment and not each.knows_max_timestamp:
                unknown += 1
                _check_unknown(each, unknown)
                _ = each.max_timestamp
        segment = max(self.segments, key=lambda each: each.max_timestamp.timestamp)
        return _answer(segment.record_of_max_timestamp(_file_of(self, segment, may_wait)))
    except NotCached as cold:
        raise ColdRead(self.topic_partition, cold) from None
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    except RecordFormatError as error:
        raise CorruptRecord(self.topic_partition, str(error)) from None


def _check_unknown(segment: Segment, count: int) -> None:
    """Raises NotCached when its age cannot be told without waiting; or when it is one too many, for each costs some 60 µs."""
    if count > MAX_UNKNOWN:
        raise NotCached(segment.filesystem, segment.path, 0, 1)
    check_time_cached(segment)


def _answer(found: RecordPosition | None) -> OffsetAndTimestamp | None:
    return None if found is None else OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch)


def aborted_transactions(self: "PartitionLog", start: int, end: int, may_wait: bool = True) -> list[AbortedTransaction]:
    """The aborted transactions that have records in `[start, end)`, for a read-committed fetch of that range.

    Raises LogDirFailure; ColdRead unless it `may_wait` for the disk.
    """
    found: list[AbortedTransaction] = []
    segment = self.segments.floor(start)
    try:
        while segment is not None:
            if not may_wait and segment is not self.active_segment:
                segment.transaction_index.check_cached()
            some, is_complete = segment.transaction_index.collect(start, end)
            found += some
            if is_complete:
                break
            segment = self.segments.higher(segment.base_offset)
    except NotCached as cold:
        raise ColdRead(self.topic_partition, cold) from None
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    return found
