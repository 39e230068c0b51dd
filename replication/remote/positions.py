"""Brings what a log knows of its remote part up to date with the metadata, on leaders and followers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.replication.remote.leadership import Leadership
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.entries import SegmentEntry, SegmentState, TopicIdPartition, is_to_copy_again
from ottla.storage.remote.lineage import LogBounds, first_missing, first_remote_offset, highest_copied, is_in_lineage, with_records
from ottla.storage.remote.ports import RemoteLogMetadata


class CopiesOf:
    """The entries of one partition."""

    __slots__ = ("_metadata", "_partition", "find")

    def __init__(self, metadata: RemoteLogMetadata, partition: TopicIdPartition) -> None:
        self._metadata = metadata
        self._partition = partition
        self.find = partial(metadata.find, partition)

    def highest_offset(self, epoch: int) -> int | None:
        """See RemoteLogMetadata."""
        return self._metadata.highest_offset(self._partition, epoch)

    def entries(self, epoch: int) -> Sequence[SegmentEntry]:
        """See RemoteLogMetadata."""
        return self._metadata.entries(self._partition, epoch)

    def epochs(self) -> Sequence[int]:
        """See RemoteLogMetadata."""
        return self._metadata.epochs(self._partition)

    def unfinished(self, epoch: int) -> Sequence[SegmentEntry]:
        """See RemoteLogMetadata."""
        return self._metadata.unfinished(self._partition, epoch)


def bounds_of(log: PartitionLog) -> LogBounds:
    """The offsets and epochs of a log, with which its remote segments are compared; without its bytes."""
    return LogBounds(log.log_start_offset, log.log_end_offset, with_records(log.leader_epochs.entries))


def refresh(log: PartitionLog, copies: CopiesOf) -> None:
    """Finds what has been copied of the log. Raises MetadataNotReady."""
    tier = log.tier
    if tier is not None:
        tier.find = copies.find
        tier.entries = copies.entries
        tier.copied = highest_copied(bounds_of(log), copies)
        tier.is_known = True


def lacks_epochs(log: PartitionLog) -> bool:
    """Tells if the log does not know the epochs of its remote records, after a crash. So it does not know which copies are its own."""
    start = log.log_start_offset
    return start < log.local_log_start_offset and log.leader_epochs.epoch_of(start) is None


def has_log_start(leadership: Leadership, copies: CopiesOf) -> bool:
    """Tells if the log of a new leader starts where the copies do, and moves its start if it can. Before that nothing is removed.

    Otherwise a removal that the former leader began would go on while records of that copy are still asked for. Raises as `find_log_start`,
    and Deposed.
    """
    if not leadership.has_log_start:
        leadership.has_log_start = find_log_start(leadership.check(), copies)
    return leadership.has_log_start


def find_log_start(log: PartitionLog, copies: CopiesOf) -> bool:
    """Moves the log start offset of a new leader to where its remote part begins. Raises MetadataNotReady, LogDirFailure.

    The former leader may have removed older segments, and this broker may not have learned of it. Local records stay visible. So do records
    that are to be copied again, because followers would delete their segments, and those of an only copy. Returns False if the high
    watermark is still below.
    """
    if lacks_epochs(log):
        start = _first_known_offset(log, copies)
    else:
        first = first_remote_offset(bounds_of(log), copies.entries)
        start = log.local_log_start_offset if first is None else min(first, log.local_log_start_offset)
        start = _first_without_copy(log, copies, start)
    if start > log.log_start_offset:
        log.increment_log_start_offset(min(start, log.high_watermark), "older records were removed from the remote store")
    return start <= log.log_start_offset


def pass_removed(log: PartitionLog, copies: CopiesOf) -> bool:
    """Moves the log start behind copies at the start of the log whose removal began. Raises MetadataNotReady, LogDirFailure.

    A former leader moved its log start first, and its record may arrive when this broker leads already. Readers would ask for records of
    these copies forever. Records that are to be copied again stay. Returns False if the high watermark is still below.
    """
    while (start := log.log_start_offset) < log.local_log_start_offset:
        epoch = log.leader_epochs.epoch_of(start)
        if epoch is None or copies.find(epoch, start) is not None:
            break
        removed = [each for each in copies.entries(epoch) if _is_removed(each) and each.start_offset <= start <= each.end_offset]
        if not removed or any(map(is_to_copy_again, removed)):
            break
        behind = min(max(each.end_offset for each in removed) + 1, log.local_log_start_offset)
        log.increment_log_start_offset(min(behind, log.high_watermark), "a former leader began to remove the copy of older records")
        if log.log_start_offset < behind:
            return False
    return True


def waits_for_copy(log: PartitionLog, copies: CopiesOf, entry: SegmentEntry) -> bool:
    """Tells if the records of the entry are to be copied again, and no other copy has all of them. Raises MetadataNotReady.

    Its entry stays until then: without one, the next leader would take its records for removed. A copy that was only begun stays for the
    records in closed segments. If the metadata have lost its end, it may be all that the next leader has of them.
    """
    bounds = bounds_of(log)
    first, last = max(entry.start_offset, bounds.log_start_offset), entry.end_offset
    if entry.state == SegmentState.COPY_SEGMENT_STARTED and is_in_lineage(entry, bounds.log_end_offset, bounds.epochs):
        last = min(last, log.segments.active.base_offset - 1)
    elif not is_to_copy_again(entry):
        return False
    return first_missing(first, last, bounds.log_end_offset, bounds.epochs, copies.find) is not None


def is_only_copy(log: PartitionLog, copies: CopiesOf, entry: SegmentEntry) -> bool:
    """Tells if a copy that is not finished has records of the log that are neither on this broker nor in a finished copy.

    Local segments go only when finished copies have their records. So this one was finished, and the metadata have lost that. A log that
    does not know which copies are its own takes each for one of these. Raises MetadataNotReady.
    """
    if entry.state != SegmentState.COPY_SEGMENT_STARTED:
        return False
    first = max(entry.start_offset, log.log_start_offset)
    last = min(entry.end_offset, log.local_log_start_offset - 1)
    if first > last:
        return False
    if lacks_epochs(log):
        return True
    bounds = bounds_of(log)
    if not is_in_lineage(entry, bounds.log_end_offset, bounds.epochs):
        return False
    return first_missing(first, last, bounds.log_end_offset, bounds.epochs, copies.find) is not None


def _first_known_offset(log: PartitionLog, copies: CopiesOf) -> int:
    """Finds where a log begins that lacks the epochs of its start: with the first offset whose epoch it knows.

    The epochs before went with their records, and the log start offset of that time was lost. But if a copy of any history has only older
    records, the epochs may have been lost alone. Then the log start offset stays.
    """
    first = min((begin for _, begin in log.leader_epochs.entries), default=log.local_log_start_offset)
    first = min(first, log.local_log_start_offset)
    for epoch in copies.epochs():
        for entry in copies.entries(epoch):
            if entry.start_offset >= first:
                break
            if entry.end_offset < first and (not _is_removed(entry) or is_to_copy_again(entry)):
                return log.log_start_offset
    return first


def _first_without_copy(log: PartitionLog, copies: CopiesOf, end: int) -> int:
    """Finds where the oldest segment of the lineage begins whose records only its entry shows; `end` without any below it.

    It is to be copied again, or its copy is not finished any more. The finished copies are not looked at: there may be tens of
    thousands, and this is one turn of the event loop.
    """
    bounds = bounds_of(log)
    for epoch, begin in bounds.epochs:
        if begin >= end:
            break
        for entry in copies.unfinished(epoch):
            if entry.start_offset >= end:
                break
            is_again = is_to_copy_again(entry) and is_in_lineage(entry, bounds.log_end_offset, bounds.epochs)
            if is_again or is_only_copy(log, copies, entry):
                return entry.start_offset
    return end


def _is_removed(entry: SegmentEntry) -> bool:
    return entry.state == SegmentState.DELETE_SEGMENT_STARTED
