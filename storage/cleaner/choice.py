"""Chooses the log to clean next, and the offsets to clean: the rules of Apache Kafka's LogCleanerManager.

Called by `LogCleaner` on the event loop. The larger the uncleaned part of a log, the dirtier it is. The active segment, offsets from the
last stable offset on, and segments younger than `min.compaction.lag.ms` are not cleanable. Segments older than `max.compaction.lag.ms` are
cleaned however clean the rest of the log is (KIP-58, KIP-354).
"""

import logging
from typing import NamedTuple

from ottla.config.schema.key import LONG_MAX
from ottla.config.topic import CLEANUP_POLICY, MAX_COMPACTION_LAG_MS, MIN_CLEANABLE_DIRTY_RATIO, MIN_COMPACTION_LAG_MS
from ottla.storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)


class DirtyRange(NamedTuple):
    """The offsets of a log to clean."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    is_checkpoint_wrong: bool


class LogToClean(NamedTuple):
    """A log that could be cleaned."""

    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of a segment."""
    clean_bytes: int
    cleanable_bytes: int
    compaction_delay_ms: int
    """Time since `max.compaction.lag.ms` required a cleaning."""
    is_checkpoint_wrong: bool

    @property
    def cleanable_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_cleanable(self) -> bool:
        """Whether a cleaning is worthwhile, or required."""
        if self.compaction_delay_ms > 0 and self.cleanable_bytes > 0:
            return True
        return self.cleanable_ratio > self.log.config[MIN_CLEANABLE_DIRTY_RATIO]


def is_compacted(each: PartitionLog) -> bool:
    """Whether its `cleanup.policy` contains `compact`."""
    return "compact" in each.config[CLEANUP_POLICY]


def log_to_clean(each: PartitionLog, last_clean_offset: int | None, now_ms: int) -> LogToClean:
    """The extent of a cleaning of the log. May raise OSError, because it reads timestamps if a lag is configured."""
    first_dirty, uncleanable, is_checkpoint_wrong = dirty_range(each, last_clean_offset, now_ms)
    segments = each.segments
    first_uncleanable_segment = segments.floor(min(uncleanable, each.segments.active.base_offset)) or segments.first
    first_uncleanable = first_uncleanable_segment.base_offset
    dirty = segments.between(min(first_dirty, first_uncleanable), first_uncleanable)
    return LogToClean(
        each,
        first_dirty,
        first_uncleanable,
        clean_bytes=sum(segment.size for segment in segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size for segment in dirty),
        compaction_delay_ms=_compaction_delay_ms(each, first_dirty, now_ms),
        is_checkpoint_wrong=is_checkpoint_wrong,
    )


def dirty_range(each: PartitionLog, last_clean_offset: int | None, now_ms: int) -> DirtyRange:
    """The offsets that are not cleaned yet and may be; `last_clean_offset` is that of the checkpoint. May raise
    OSError."""
    log_start_offset = each.log_start_offset
    first_dirty = log_start_offset if last_clean_offset is None else last_clean_offset
    is_checkpoint_wrong = False
    if first_dirty < log_start_offset:
        if "delete" not in each.config[CLEANUP_POLICY]:
            log.warning(
                "%s: cleaning begins at the log start offset %d, because the cleaner's checkpoint, %d, is below it",
                each.topic_partition,
                log_start_offset,
                first_dirty,
            )
        first_dirty, is_checkpoint_wrong = log_start_offset, True
    elif first_dirty > each.log_end_offset:
        log.warning(
            "%s: the whole log is cleaned, because the cleaner's checkpoint, %d, is beyond its end, %d",
            each.topic_partition,
            first_dirty,
            each.log_end_offset,
        )
        first_dirty, is_checkpoint_wrong = log_start_offset, True
    uncleanable = min(each.last_stable_offset, each.segments.active.base_offset)
    min_lag_ms = each.config[MIN_COMPACTION_LAG_MS]
    if min_lag_ms > 0:
        for segment in each.segments.between(first_dirty, each.segments.active.base_offset):
            if segment.largest_timestamp > now_ms - min_lag_ms:
                uncleanable = min(uncleanable, segment.base_offset)
                break
    return DirtyRange(first_dirty, max(first_dirty, uncleanable), is_checkpoint_wrong)


def _compaction_delay_ms(each: PartitionLog, first_dirty_offset: int, now_ms: int) -> int:
    max_lag_ms = each.config[MAX_COMPACTION_LAG_MS]
    if max_lag_ms == LONG_MAX:
        return 0
    dirty = each.segments.between(first_dirty_offset, each.segments.active.base_offset)
    earliest = min((timestamp for segment in dirty if (timestamp := segment.first_batch_timestamp) > 0), default=LONG_MAX)
    return max(now_ms - max_lag_ms - earliest, 0)
