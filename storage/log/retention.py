"""Deletes old segments: those below the log start offset, beyond `retention.bytes`, and older than `retention.ms`.

`RetentionChecks` calls it every `log.retention.check.interval.ms`, and the log cleaner for the logs that it compacts. The rules are those
of Apache Kafka's UnifiedLog.deleteOldSegments. Whole segments are deleted, from the oldest on, and only below the high watermark. The age
of a segment is that of its newest timestamp. The active segment may be deleted, too; then an empty one replaces it.

Of a log with remote storage, `local.retention.*` deletes segments that the remote store has, and leaves the log start offset. `retention.*`
deletes segments although the store does not have them: an outage of the store must not fill the disk. The log start offset then passes all
copies, which would be removed. So `retention.ms` waits while a copy of older offsets is not due, as it waits for a segment elsewhere: old
records may be written behind new ones. For `retention.bytes` the bytes on the disk alone are too many. The active segment is rolled when
it is due. That is after all deletions, so that it may be copied before the next check.

A topic may have lost its remote storage by a program that did not ask the brokers, or by a malformed configuration. Nothing is copied
then, and only what the store has is deleted: the oldest records are there, and the log start offset must not pass them.
"""

from typing import Final

from ottla.config.topic import CLEANUP_POLICY, LOCAL_RETENTION_BYTES, LOCAL_RETENTION_MS, RETENTION_BYTES, RETENTION_MS
from ottla.storage.log.partition_log import NO_LIMIT, PartitionLog, ShouldDelete
from ottla.storage.remote.tier import Tier
from ottla.storage.segment.cold_lookups import ColdRead, NotCached, check_time_cached
from ottla.storage.segment.segment import Segment

DELETED_TOGETHER: Final = 10
"""Segments of a log that are deleted between two pauses: a thread removes their files together. One costs some 50 µs."""


def delete_old_segments(log: PartitionLog, now_ms: int, *, at_most: int = NO_LIMIT, may_wait: bool = True) -> int:
    """Delete segments as the configuration requires. Returns their number. If it is at least `at_most`, there may be more.

    Raises LogDirFailure; and ColdRead when finding the age of a segment would wait for the disk, unless it `may_wait`.
    """
    try:
        deleted = 0
        if len(log.segments) > 1 and log.log_start_offset > log.segments.first.base_offset:
            reason = f"below the log start offset {log.log_start_offset}"
            deleted += log.delete_old_segments(_below(log.log_start_offset), reason, at_most)
        if "delete" not in log.config[CLEANUP_POLICY]:
            return deleted
        if log.tier is not None and (log.is_copied or log.tier.may_have(log.log_start_offset, log.segments.first.base_offset)):
            return deleted + _delete_tiered(log, log.tier, now_ms, at_most - deleted, may_wait=may_wait)
        retention_bytes = log.config[RETENTION_BYTES]
        if retention_bytes >= 0 and deleted < at_most:
            excess = log.size_bytes - retention_bytes
            if excess >= 0:
                reason = f"the log is {excess} bytes larger than retention.bytes={retention_bytes}"
                deleted += log.delete_old_segments(_beyond(excess), reason, at_most - deleted)
        retention_ms = log.config[RETENTION_MS]
        if retention_ms >= 0 and deleted < at_most:
            is_old = _older_than(now_ms - retention_ms, may_wait=may_wait)
            deleted += log.delete_old_segments(is_old, f"older than retention.ms={retention_ms}", at_most - deleted)
        return deleted
    except NotCached as cold:
        raise ColdRead(log.topic_partition, cold) from None
    except OSError as error:
        raise log.files.failure(error) from error


def _delete_tiered(log: PartitionLog, tier: Tier, now_ms: int, at_most: int, *, may_wait: bool) -> int:
    """Delete segments of a log with remote storage. Raises NotCached, OSError, LogDirFailure."""
    local_bytes, local_ms = log.config[LOCAL_RETENTION_BYTES], log.config[LOCAL_RETENTION_MS]
    active = log.segments.active
    is_old = _older_than(now_ms - local_ms, may_wait=may_wait)
    deleted = 0

    def delete(should_delete: ShouldDelete, reason: str, *, is_copied: bool) -> None:
        nonlocal deleted
        if deleted < at_most:
            due = _copied(log, tier, should_delete) if is_copied else _closed(should_delete)
            deleted += log.delete_old_segments(due, reason, at_most - deleted, keeps_log_start=is_copied)

    if local_bytes >= 0:
        excess = log.size_bytes - local_bytes
        if excess >= 0:
            delete(_beyond(excess), f"the log is {excess} bytes larger than local.retention.bytes={local_bytes}", is_copied=True)
    if local_ms >= 0:
        delete(is_old, f"older than local.retention.ms={local_ms}", is_copied=True)
    if not log.is_copied:
        return deleted
    retention_bytes, retention_ms = log.config[RETENTION_BYTES], log.config[RETENTION_MS]
    if retention_bytes >= 0:
        excess = log.only_local_bytes - retention_bytes
        if excess >= 0:
            reason = f"{excess} bytes more than retention.bytes={retention_bytes} are not in the remote store"
            delete(_beyond(excess), reason, is_copied=False)
    if retention_ms >= 0:
        reason = f"older than retention.ms={retention_ms}, although not in the remote store"
        delete(_older_than_copies_too(log, tier, now_ms - retention_ms, may_wait=may_wait), reason, is_copied=False)
    if deleted < at_most and active.size and (local_bytes == 0 or (local_ms >= 0 and is_old(active, None))):
        log.roll()
    return deleted


def _copied(log: PartitionLog, tier: Tier, should_delete: ShouldDelete) -> ShouldDelete:
    """Only segments of which the remote store has every record."""
    epochs = log.leader_epochs.entries

    def is_due(segment: Segment, following: Segment | None) -> bool:
        if following is None or not should_delete(segment, following):
            return False
        first = max(segment.base_offset, log.log_start_offset)
        return tier.has_all(first, following.base_offset - 1, log.log_end_offset, epochs)

    return is_due


def _older_than_copies_too(log: PartitionLog, tier: Tier, oldest_ms: int, *, may_wait: bool) -> ShouldDelete:
    """Only segments that are older, and none if the store may have newer records before the first one."""
    is_old = _older_than(oldest_ms, may_wait=may_wait)
    first = log.segments.first

    def is_due(segment: Segment, following: Segment | None) -> bool:
        if not is_old(segment, following):
            return False
        # Segments go from the first one on, so that the others are asked for only if the first one is due.
        epochs = log.leader_epochs.entries
        return segment is not first or not tier.may_have_newer(log.log_start_offset, segment.base_offset, oldest_ms, epochs)

    return is_due


def _closed(should_delete: ShouldDelete) -> ShouldDelete:
    return lambda segment, following: following is not None and should_delete(segment, following)


def _below(log_start_offset: int) -> ShouldDelete:
    return lambda segment, following: following is not None and following.base_offset <= log_start_offset


def _beyond(excess_bytes: int) -> ShouldDelete:
    left = excess_bytes

    def should_delete(segment: Segment, following: Segment | None) -> bool:
        nonlocal left
        if segment.size > left:
            return False
        left -= segment.size
        return True

    return should_delete


def _older_than(oldest_ms: int, *, may_wait: bool) -> ShouldDelete:
    def should_delete(segment: Segment, following: Segment | None) -> bool:
        if not may_wait and following is not None and not segment.knows_max_timestamp:
            check_time_cached(segment)
        return segment.largest_timestamp < oldest_ms

    return should_delete
