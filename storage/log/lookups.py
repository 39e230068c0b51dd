"""Searches a log for records by timestamp, for ListOffsets, and for aborted transactions, for Fetch.

The largest timestamp of a segment may have to be read from the disk first. A search that may not wait for the disk raises ColdRead, and a
thread reads ahead. A search with a `FoundRecords` also raises ColdRead at a large batch, which a thread then searches. The `warm` of that
error puts the result into the `FoundRecords`, for the repeated search. All searches raise CorruptRecord and LogDirFailure, too. They raise
InvalidRecord and UnreadableRecords for malformed records, of which ListOffsets gets the code that Apache Kafka gives.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.errors import CorruptCompressedData, RecordFormatError, UnknownCompressionCodec
from ottla.protocol.records.errors import InvalidRecord as InvalidFormat
from ottla.storage.errors import InvalidRecord
from ottla.storage.log.batch_reader import file_of
from ottla.storage.log.reads import MAX_UNKNOWN, FetchSlice, OffsetAndTimestamp
from ottla.storage.segment.cold_lookups import LOOKUP_ERRORS, NotCached, check_time_cached
from ottla.storage.segment.record_search import FoundRecords
from ottla.storage.segment.segment import NEVER, RecordPosition, Segment
from ottla.storage.segment.transaction_index import AbortedTransaction, Walk
from ottla.storage.validation.record_errors import UnreadableRecords

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

MOST_ABORTED: Final = 5000
"""Aborted transactions among the records of a partition in an answer; a few more if several were open at its end. The event loop takes two
microseconds for each, and 50 MB of records may have 300,000."""


def offset_for_timestamp(
    log: "PartitionLog", timestamp_ms: int, may_wait: bool = True, found: FoundRecords | None = None
) -> OffsetAndTimestamp | None:
    """The first record with a timestamp of at least `timestamp_ms`; None if there is none. Decompresses one batch."""
    try:
        # The cleaner leaves empty segments, and batches without their newest record. Apache Kafka ends its search there.
        for segment in _examined(log, (each for each in log.segments if each.size), may_wait):
            if segment.largest_timestamp >= timestamp_ms:
                if not may_wait and segment is not log.segments.active:
                    check_time_cached(segment)
                file = file_of(log.segments.active, segment, may_wait)
                position = segment.find_by_timestamp(timestamp_ms, log.log_start_offset, file, found)
                if position is not None:
                    return _answer(position)
    except LOOKUP_ERRORS as error:
        raise _failed(log, error) from error
    return None


def offset_of_max_timestamp(log: "PartitionLog", may_wait: bool = True, found: FoundRecords | None = None) -> OffsetAndTimestamp | None:
    """The first record with the largest timestamp of the log; None if no record has a timestamp. Decompresses one batch."""
    try:
        segment = max(_examined(log, log.segments, may_wait), key=lambda each: each.max_timestamp.timestamp)
        return _answer(segment.record_of_max_timestamp(file_of(log.segments.active, segment, may_wait), found))
    except LOOKUP_ERRORS as error:
        raise _failed(log, error) from error


def begins_up_to(log: "PartitionLog", timestamp_ms: int, may_wait: bool = True) -> list[int]:
    """The first offsets of the segments without a record after `timestamp_ms`."""
    try:
        return [
            max(segment.base_offset, log.log_start_offset)
            for segment in _examined(log, log.segments, may_wait)
            if segment.largest_timestamp <= timestamp_ms
        ]
    except LOOKUP_ERRORS as error:
        raise _failed(log, error) from error


def aborted_transactions(
    log: "PartitionLog", start: int, end: int, may_wait: bool = True, at_most: int = NEVER
) -> list[AbortedTransaction]:
    """The aborted transactions with records in `[start, end)`, for a read-committed fetch of that range, in the order of their markers.

    If there are more than `at_most`, returns at least the first `at_most` of them.
    """
    found: list[AbortedTransaction] = []
    walk = None if may_wait else Walk()
    try:
        for segment in log.segments.between(start, NEVER):
            index = segment.transaction_index
            if not index.exists():
                continue  # mostly, and there may be thousands of segments up to the end
            some, is_complete = index.collect(start, end, at_most - len(found), walk)
            found += some
            if is_complete or len(found) >= at_most:
                break
    except LOOKUP_ERRORS as error:
        raise _failed(log, error) from error
    return found


def end_of_answer(aborted: Sequence[AbortedTransaction], end_offset: int) -> int:
    """Returns where an answer up to `end_offset` has to end, whose first aborted transactions these are."""
    if len(aborted) < MOST_ABORTED:
        return end_offset
    return min(aborted[MOST_ABORTED - 1].last_offset + 1, end_offset)


def with_aborted(
    log: "PartitionLog", found: FetchSlice, offset: int, max_bytes: int, min_one_batch: bool, may_wait: bool
) -> tuple[FetchSlice, list[AbortedTransaction]]:
    """The aborted transactions among the records that a read has found, and these records: fewer ones, if there are too many transactions.

    `offset`, `max_bytes` and `min_one_batch` are those of the read.
    """
    aborted = aborted_transactions(log, offset, found.next_offset, may_wait, MOST_ABORTED)
    if len(aborted) >= MOST_ABORTED:
        end_offset = end_of_answer(aborted, found.next_offset)
        if end_offset < found.next_offset:
            found = log.read(offset, max_bytes, end_offset, min_one_batch, may_wait)
        aborted = aborted_transactions(log, offset, found.next_offset, may_wait)
    return found, aborted


def _failed(log: "PartitionLog", error: NotCached | OSError | RecordFormatError) -> Exception:
    """The error to raise for one of `LOOKUP_ERRORS`. CORRUPT_MESSAGE would make clients ask again and again."""
    if isinstance(error, InvalidFormat):
        return InvalidRecord(log.topic_partition, str(error))
    if isinstance(error, CorruptCompressedData | UnknownCompressionCodec):
        return UnreadableRecords(log.topic_partition, str(error))
    return log.files.failed_lookup(error)


def _examined(log: "PartitionLog", segments: Iterable[Segment], may_wait: bool) -> Iterator[Segment]:
    """The segments whose largest timestamps the caller reads, one after the other.

    Unless it `may_wait`, raises NotCached if finding that would wait, or if it was unknown of too many before: each costs some 60 µs.
    """
    unknown = 0
    for segment in segments:
        if not may_wait and segment is not log.segments.active and not segment.knows_max_timestamp:
            unknown += 1
            if unknown > MAX_UNKNOWN:
                raise NotCached(segment.filesystem, segment.path, 0, 1)
            check_time_cached(segment)
        yield segment


def _answer(found: RecordPosition | None) -> OffsetAndTimestamp | None:
    return None if found is None else OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch)
