"""Reads one partition from the remote store, at an offset below the local log start offset (KIP-405).

A read of the log raises OffsetMovedToTieredStorage there. For a consumer the Fetch handler then calls `read_remote`, which finds what is
cached. ShareFetch calls `find_records`. The rest is read in the background, and then the partition is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from ottla.replication.leader.partition import Partition
from ottla.replication.reading.asked_partition import READ_COMMITTED, AskedPartition
from ottla.replication.reading.fetch_read import FetchParams, note_end
from ottla.storage.disk.clock import NEVER_MS, elapsed_ms
from ottla.storage.log.lookups import MOST_ABORTED, aborted_transactions, end_of_answer, with_aborted
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.lineage import LogBounds, next_copy, with_records
from ottla.storage.remote.ports import RemoteStoreError
from ottla.storage.remote.segment_reader import RemoteSlice, SegmentReader
from ottla.storage.segment.cold_lookups import ColdRead, NotCached
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.segment import NEVER
from ottla.storage.segment.transaction_index import AbortedTransaction, Walk

logger = logging.getLogger(__name__)

QUIET_MS: Final = 60_000
"""Time for which another failed read is not logged."""


class RemoteReads:
    """Reads of remote segments on one broker.

    `copy_of` finds the copy that has an offset of a log; it raises MetadataNotReady. `max_wait_ms` is how long a Fetch may wait for it.
    """

    __slots__ = ("_quiet_until", "copy_of", "max_wait_ms", "segments")

    def __init__(
        self, segments: SegmentReader, copy_of: Callable[[PartitionLog, int], SegmentEntry | None], max_wait_ms: Callable[[], int]
    ) -> None:
        self.segments = segments
        self.copy_of = copy_of
        self.max_wait_ms = max_wait_ms
        self._quiet_until = NEVER_MS

    def report(self, log: PartitionLog, error: BaseException) -> None:
        """Logs that records could not be read; once a minute, since a fault of the store fails the reads of many clients."""
        now = elapsed_ms(log.context.clock)
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET_MS
            logger.warning("%s cannot be read from the remote store: %s; consumers try again", log.topic_partition, error)

    def entry(self, log: PartitionLog, offset: int) -> SegmentEntry:
        """Returns the copy that has the offset. Raises MetadataNotReady, and RemoteStoreError if there is none."""
        entry = self.copy_of(log, offset)
        if entry is None:
            raise RemoteStoreError(f"no segment of {log.topic_partition} in the remote store has offset {offset}")
        return entry

    def entry_from(self, log: PartitionLog, offset: int) -> SegmentEntry | None:
        """Returns the copy that has the offset, or the next one behind a gap; None if there is none before the first local record.

        Raises MetadataNotReady.
        """
        if offset >= log.local_log_start_offset:
            return None
        entry = self.copy_of(log, offset)
        if entry is None and log.tier is not None:
            bounds = LogBounds(log.log_start_offset, log.log_end_offset, with_records(log.leader_epochs.entries))
            entry = next_copy(offset, bounds, log.tier.entries)
        return entry if entry is None or entry.start_offset < log.local_log_start_offset else None


class Wanted(NamedTuple):
    """Says which records a reader wants: those from `offset` on and below `end_offset`.

    It takes at most `max_bytes`, unless `min_one_batch` wants a larger batch whole. `may_wait` allows waiting for the disk.
    """

    offset: int
    end_offset: int
    max_bytes: int
    min_one_batch: bool
    is_committed: bool
    may_wait: bool


def note_offsets(partition: Partition, asked: AskedPartition) -> None:
    """Sets the offsets of the log in the result, without records."""
    log = partition.log
    asked.region = None
    asked.aborted = None
    asked.high_watermark = log.high_watermark
    asked.last_stable_offset = log.last_stable_offset
    asked.log_start_offset = log.log_start_offset
    note_end(log, asked)


def read_remote(
    reads: RemoteReads, partition: Partition, asked: AskedPartition, params: FetchParams, reader: Hashable, cuts_first: bool
) -> None:
    """Reads the partition within the remaining bytes, for a consumer. The result is in `asked`, whose offsets are set.

    `cuts_first` is for clients that get the beginning of a batch that is larger than the limit. Raises NotHere, ColdRead,
    MetadataNotReady, RemoteStoreError, StorageError.
    """
    max_bytes = asked.max_bytes if asked.max_bytes < params.left else params.left
    wanted = Wanted(
        asked.offset, asked.end_offset, max_bytes, params.min_one_batch or cuts_first, params.isolation == READ_COMMITTED, params.may_wait
    )
    region, aborted = find_records(reads, partition.log, wanted, reader)
    if region is not None and cuts_first and region.length > max_bytes:
        region = region.cut(max_bytes) if max_bytes > 0 else None
    if region is not None:
        asked.region = region
        asked.aborted = [(each.producer_id, each.first_offset) for each in aborted] if wanted.is_committed else None
        params.size += region.length
        params.left = max(params.left - region.length, 0)
        params.min_one_batch = False


def find_records(
    reads: RemoteReads, log: PartitionLog, wanted: Wanted, reader: Hashable
) -> tuple[FileRegion | None, list[AbortedTransaction]]:
    """Finds records below the local log start, and their aborted transactions if only committed records are wanted.

    The region is None if no batch fits. `reader` is the one whose next chunks are read ahead. Raises NotHere, ColdRead, MetadataNotReady,
    RemoteStoreError, StorageError.
    """
    try:
        entry, offset, found = _find(reads, log, wanted)
        if found.region is None:
            if found.next_offset <= offset:
                return None, []
            # The segment has no record there, nor has a later one.
            local = log.read(found.next_offset, wanted.max_bytes, wanted.end_offset, wanted.min_one_batch, wanted.may_wait)
            if local.region is None or not wanted.is_committed:
                return local.region, []
            local, aborted = with_aborted(log, local, found.next_offset, wanted.max_bytes, wanted.min_one_batch, wanted.may_wait)
            return local.region, aborted
        found, aborted = _with_aborted(reads, log, wanted, entry, offset, found) if wanted.is_committed else (found, [])
    except NotCached as cold:
        raise ColdRead(log.topic_partition, cold) from None
    following = reads.copy_of(log, entry.end_offset + 1) if entry.end_offset + 1 < log.local_log_start_offset else None
    reads.segments.read_ahead(entry, offset, found, reader, following)
    return found.region, aborted


def _find(reads: RemoteReads, log: PartitionLog, wanted: Wanted) -> tuple[SegmentEntry, int, RemoteSlice]:
    """Finds the batches at the first offset from the wanted one on that has some, in the remote store."""
    offset = wanted.offset
    while True:
        entry = reads.entry(log, offset)
        found = reads.segments.read(entry, offset, wanted.max_bytes, wanted.min_one_batch, wanted.may_wait)
        if found.region is not None or found.next_offset <= offset or found.next_offset >= log.local_log_start_offset:
            return entry, offset, found
        offset = found.next_offset


def _with_aborted(
    reads: RemoteReads, log: PartitionLog, wanted: Wanted, entry: SegmentEntry, offset: int, found: RemoteSlice
) -> tuple[RemoteSlice, list[AbortedTransaction]]:
    """Finds what `with_aborted` does, of one remote segment."""
    aborted = _aborted(reads, log, entry, offset, found.next_offset, wanted.may_wait, MOST_ABORTED)
    if len(aborted) >= MOST_ABORTED:
        end_offset = end_of_answer(aborted, found.next_offset)
        if end_offset < found.next_offset:
            found = reads.segments.read(entry, offset, wanted.max_bytes, wanted.min_one_batch, wanted.may_wait, end_offset)
        aborted = _aborted(reads, log, entry, offset, found.next_offset, wanted.may_wait, NEVER)
    return found, aborted


def _aborted(
    reads: RemoteReads, log: PartitionLog, entry: SegmentEntry, start: int, end: int, may_wait: bool, at_most: int
) -> list[AbortedTransaction]:
    """Finds the aborted transactions with records in `[start, end)`, all of it in one remote segment: there, then in later segments.

    If there are more than `at_most`, returns at least the first `at_most` of them.
    """
    found: list[AbortedTransaction] = []
    walk = None if may_wait else Walk()
    while True:
        some, is_complete = reads.segments.aborted_transactions(entry, start, end, walk, at_most - len(found))
        found += some
        next_offset = entry.end_offset + 1
        if is_complete or len(found) >= at_most:
            break
        if next_offset >= log.local_log_start_offset:
            found += aborted_transactions(log, next_offset, end, may_wait, at_most - len(found))
            break
        entry = reads.entry(log, next_offset)
    return found
