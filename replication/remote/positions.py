"""Brings what a log knows of its remote part up to date with the metadata, on leaders and followers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.entries import SegmentEntry, TopicIdPartition
from ottla.storage.remote.lineage import LogBounds, first_remote_offset, highest_copied, with_records
from ottla.storage.remote.ports import RemoteLogMetadata
from ottla.storage.remote.tier import OTHER_LOG

logger = logging.getLogger(__name__)


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


async def is_of_other_log(log: PartitionLog, copies: CopiesOf, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> bool:
    """Tells a leader if the store has records of its leader epoch that its log does not have. It wrote all records of the epoch itself.

    So the log that it copied is lost, or the end of it, and new records have the offsets of others. It finds out once in each epoch.
    The file OTHER_LOG keeps that, since later the log may be longer than the lost one, or in another epoch. Raises OSError.
    """
    tier, epochs = log.tier, log.leader_epochs.entries
    if tier is None or not epochs:
        return False
    epoch, end_offset = epochs[-1][0], log.log_end_offset
    if tier.checked_epoch != epoch:
        highest = copies.highest_offset(epoch)
        tier.is_of_other_log |= highest is not None and highest >= end_offset
        is_known: bool = await in_thread(partial(log.context.filesystem.exists, f"{log.directory}/{OTHER_LOG}"))
        tier.is_of_other_log |= is_known
        if tier.is_of_other_log and not is_known:
            await in_thread(partial(log.files.small_files.replace, OTHER_LOG, f"{epoch} {end_offset}\n".encode()))
        if tier.is_of_other_log and tier.checked_epoch != epoch:
            logger.error(
                "%s: the remote store has records up to offset %s of leader epoch %d, and the log ended at %d or before: it is not the log "
                "that was copied. Nothing is copied, and nothing is removed here or there, while %s is in its directory. `ottla remote "
                "restore` writes the old records to another topic; a backup of the log directory would do, too.",
                log.topic_partition,
                highest,
                epoch,
                end_offset,
                OTHER_LOG,
            )
        tier.checked_epoch = epoch
    return tier.is_of_other_log


def lacks_epochs(log: PartitionLog) -> bool:
    """Tells if the log does not know the epochs of its remote records, after a crash. So it does not know which copies are its own."""
    start = log.log_start_offset
    return start < log.local_log_start_offset and log.leader_epochs.epoch_of(start) is None


def find_log_start(log: PartitionLog, copies: CopiesOf) -> None:
    """Moves the log start offset of a new leader to where its remote part begins. Raises MetadataNotReady, LogDirFailure.

    The former leader may have removed older segments, and this broker may not have learned of it. Local records stay visible.
    """
    if lacks_epochs(log):
        return
    first = first_remote_offset(bounds_of(log), copies.entries)
    start = log.local_log_start_offset if first is None else min(first, log.local_log_start_offset)
    if start > log.log_start_offset:
        log.increment_log_start_offset(min(start, log.high_watermark), "older records were removed from the remote store")
