"""Finds out that the copies in the remote store are not those of a broker's log: the log that was copied is lost with all its replicas.

A leader wrote all records of its epoch itself. If the store has some behind the end that its log had when it was opened, they are of
another log. Later the new log may be longer than the lost one, or in another epoch. So the broker keeps the finding in a file, OTHER_LOG.
A mark in the metadata of a copy tells the other replicas, of which one may lead later: for local retention the copies do not count.

The mark stays when a backup of the lost log comes back, and that of a former leader may arrive late. The file stays when its broker fetches
such a backup from a leader. So a leader that has only one of the two compares a batch of its log with a copy.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from ottla.replication.remote.copies import CopyServices
from ottla.replication.remote.leadership import Leadership
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.entries import SegmentEntry, SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.object_layout import MalformedCustomMetadata, with_mark
from ottla.storage.remote.tier import OTHER_LOG

logger = logging.getLogger(__name__)

_COMPARED_BYTES: Final = 61
"""The header of a batch, which has a checksum of its records."""
_FINISHED: Final = SegmentState.COPY_SEGMENT_FINISHED


async def is_of_other_log(services: CopyServices, leadership: Leadership, partition: TopicIdPartition) -> bool:
    """Tells a leader if the copies are of another log. It finds out once in each epoch, and at a mark, and tells the others.

    Raises Deposed, MetadataNotReady, MetadataWriteFailed, RemoteStoreError, StorageError, OSError.
    """
    log = leadership.check()
    tier, epochs = log.tier, log.leader_epochs.entries
    if tier is None or not epochs:
        return False
    is_marked = services.metadata.marked(partition) is not None
    if tier.checked_epoch != leadership.leader_epoch or (is_marked and not tier.is_of_other_log):
        await _find_out(services, leadership, partition)
    if tier.is_of_other_log and services.metadata.marked(partition) is None:
        await _mark(services, leadership, partition)
    return tier.is_of_other_log


async def _find_out(services: CopyServices, leadership: Leadership, partition: TopicIdPartition) -> None:
    log, epoch = leadership.check(), leadership.leader_epoch
    tier = log.tier
    assert tier is not None
    is_first = tier.checked_epoch != epoch  # later the store has copies of this broker that `known_end` may not know yet
    highest = services.metadata.highest_offset(partition, epoch)
    path = f"{log.directory}/{OTHER_LOG}"
    is_known: bool = await services.in_thread(partial(log.context.filesystem.exists, path))
    leadership.check()
    mark = services.metadata.marked(partition)
    is_other = (is_known and mark is not None) or (is_first and highest is not None and highest >= tier.known_end)
    if not is_other and (is_known or mark is not None):
        is_other = not await _has_records_of_a_copy(services, leadership, partition)
        if not is_other and mark is not None:
            await _publish(services, leadership, mark, is_marked=False)
    if is_other != is_known:
        text = f"{epoch} {tier.known_end}\n".encode()
        small_files = log.files.small_files
        await services.in_thread(partial(small_files.replace, OTHER_LOG, text) if is_other else partial(small_files.remove, OTHER_LOG))
        leadership.check()
    if tier.checked_epoch == epoch and (tier.is_of_other_log or not is_other):
        return  # the other task of the partition was faster
    tier.is_of_other_log = is_other
    tier.checked_epoch = epoch
    if is_other:
        logger.error(
            "%s: the copies in the remote store are not those of this log. Nothing is copied, and nothing is removed here or there, while "
            "%s is in its directory. `ottla remote restore` writes the old records to another topic; a backup of the log directory would "
            "do, too.",
            log.topic_partition,
            OTHER_LOG,
        )


async def _has_records_of_a_copy(services: CopyServices, leadership: Leadership, partition: TopicIdPartition) -> bool:
    """Whether the last copy with records whose first one is here, too, begins with the same batch.

    If no copy has its first record here, local retention has removed segments, which it never does for another log; or this log has none.
    """
    log = leadership.check()
    entries = (each for each in services.metadata.all_entries(partition) if each.state == _FINISHED and each.size)
    here = [each for each in entries if log.local_log_start_offset <= each.start_offset < log.log_end_offset]
    if not here:
        return log.log_start_offset < log.local_log_start_offset
    entry = max(here, key=lambda each: each.start_offset)
    region = log.read(entry.start_offset, _COMPARED_BYTES, log.log_end_offset, True).region
    if region is None:
        return False
    own = await services.in_thread(region.read)
    copied = await services.store.fetch(entry, 0, min(_COMPARED_BYTES, entry.size))
    leadership.check()
    return own[:_COMPARED_BYTES] == bytes(copied)


async def _mark(services: CopyServices, leadership: Leadership, partition: TopicIdPartition) -> None:
    """Marks the first copy whose metadata can take it."""
    for entry in services.metadata.all_entries(partition):
        if entry.state == _FINISHED:
            try:
                await _publish(services, leadership, entry, is_marked=True)
                return
            except MalformedCustomMetadata:
                continue


async def _publish(services: CopyServices, leadership: Leadership, entry: SegmentEntry, *, is_marked: bool) -> None:
    """Raises MalformedCustomMetadata."""
    custom = with_mark(entry.custom, is_marked)
    now_ms = services.clock.now_ms()
    await services.metadata.update(SegmentUpdate(entry.id, services.settings.broker_id, now_ms, _FINISHED, custom))
    leadership.check()


def follow_mark(log: PartitionLog, services: CopyServices, partition: TopicIdPartition) -> None:
    """Tells the log of a follower what its leader has found out. Raises MetadataNotReady."""
    if log.tier is not None:
        log.tier.is_of_other_log = services.metadata.marked(partition) is not None
