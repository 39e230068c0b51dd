"""Which segments a log may lose: those below its log start offset, those beyond `retention.bytes`, and those older than `retention.ms`.

`LogManager` asks every `log.retention.check.interval.ms`, and the log cleaner for the logs that it compacts. The rules are those of Apache
Kafka's UnifiedLog.deleteOldSegments: whole segments, from the oldest on, only below the high watermark; a segment is as old as its newest
timestamp; the active one may go too, and an empty one takes its place.
"""

from collections.abc import Callable

from config.topic import CLEANUP_POLICY, RETENTION_BYTES, RETENTION_MS
from storage.partition_log import PartitionLog
from storage.segment import Segment

_ShouldDelete = Callable[[Segment, Segment | None], bool]


def delete_old_segments(log: PartitionLog, now_ms: int) -> int:
    """Deletes what has to go; returns how many segments. Raises LogDirFailure."""
    deleted = 0
    if len(log.segments) > 1 and log.log_start_offset > log.segments.first.base_offset:
        deleted += log.delete_old_segments(_below(log.log_start_offset), f"below the log start offset {log.log_start_offset}")
    if "delete" not in log.config[CLEANUP_POLICY]:
        return deleted
    retention_bytes = log.config[RETENTION_BYTES]
    if retention_bytes >= 0:
        excess = log.size_bytes - retention_bytes
        if excess >= 0:
            deleted += log.delete_old_segments(_beyond(excess), f"the log is {excess} bytes larger than retention.bytes={retention_bytes}")
    retention_ms = log.config[RETENTION_MS]
    if retention_ms >= 0:
        deleted += log.delete_old_segments(_older_than(now_ms - retention_ms), f"older than retention.ms={retention_ms}")
    return deleted


def _below(log_start_offset: int) -> _ShouldDelete:
    return lambda segment, following: following is not None and following.base_offset <= log_start_offset


def _beyond(excess_bytes: int) -> _ShouldDelete:
    left = excess_bytes

    def should_delete(segment: Segment, following: Segment | None) -> bool:
        nonlocal left
        if segment.size > left:
            return False
        left -= segment.size
        return True

    return should_delete


def _older_than(oldest_ms: int) -> _ShouldDelete:
    return lambda segment, following: segment.largest_timestamp < oldest_ms
