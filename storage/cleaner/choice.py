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
from ottla.storage.log.reads import MAX_UNKNOWN
from ottla.storage.segment.cold_lookups import NotCached, check_beginning_cached, check_time_cached
from ottla.storage.segment.segment import UNKNOWN

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


def read_ages(each: PartitionLog, last_clean_offset: int | None) -> None:
    """Reads the timestamps that `log_to_clean` needs if a lag is configured, as far as that does not wait for the disk.

    Raises NotCached if some are left: a thread then reads ahead, and this is called again. May raise OSError.
    """
    has_min_lag, has_max_lag = each.config[MIN_COMPACTION_LAG_MS] > 0, each.config[MAX_COMPACTION_LAG_MS] != LONG_MAX
    if not (has_min_lag or has_max_lag):
        return
    start = each.log_start_offset if last_clean_offset is None else last_clean_offset
    unknown = 0
    for segment in each.segments.between(start, each.segments.active.base_offset):
        needs_last = has_min_lag and not segment.knows_max_timestamp
        needs_first = has_max_lag and segment.size > 0 and segment.rolling_based_timestamp == UNKNOWN
        if not (needs_last or needs_first):
            continue
        unknown += 1
        if unknown > MAX_UNKNOWN:
            raise NotCached(segment.filesystem, segment.path, 0, 1)
        if needs_last:
            check_time_cached(segment)
            _ = segment.max_timestamp
        if needs_first:
            check_beginning_cached(segment)
            _ = segment.first_batch_timestamp


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
