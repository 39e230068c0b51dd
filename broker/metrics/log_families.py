"""Declares the families of kafka.log: logs, their directories, flushes and the cleaner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind, counter, gauge, labelled, timer
from ottla.broker.metrics.view import PARTITION_LABELS
from ottla.storage.disk.clock import elapsed_ms

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.storage.cleaner.compaction import LogCleaner
    from ottla.storage.log.partition_log import PartitionLog


def _of_log(mbean: str, doc: str, value: Callable[[PartitionLog], int]) -> Family:
    name, pattern = f"kafka_log_log_{mbean.lower()}", f"kafka.log:name={mbean},partition=*,topic=*,type=Log"
    return Family(name, Kind.GAUGE, PARTITION_LABELS, pattern, doc, lambda view: ((at, value(of.log)) for at, of in view.partitions))


def _of_directory(name: str, mbean: str, doc: str, value: Callable[[View, str], float]) -> Family:
    return labelled(
        name,
        Kind.GAUGE,
        ("logDirectory",),
        f"kafka.log:logDirectory=*,{mbean}",
        doc,
        lambda view: (((path,), value(view, path)) for path in list(view.services.data.log_manager.directories.all)),
    )


def _cleaner(name: str, kind: str, doc: str, value: Callable[[LogCleaner], float]) -> Family:
    prometheus_name = f"kafka_log_{kind.lower()}_{name.replace('-', '_')}"
    return gauge(prometheus_name, f"kafka.log:name={name},type={kind}", doc, lambda view: value(view.services.data.log_manager.cleaner))


LOG_FAMILIES: tuple[Family, ...] = (
    _of_log("Size", "Bytes of the log.", lambda log: log.size_bytes),
    _of_log("LogEndOffset", "The offset that the next record gets.", lambda log: log.log_end_offset),
    _of_log("LogStartOffset", "The first offset that can be read.", lambda log: log.log_start_offset),
    _of_log("NumLogSegments", "Segments of the log.", lambda log: len(log.segments)),
    timer(
        "kafka_log_logflushstats_logflushrateandtimems",
        "kafka.log:name=LogFlushRateAndTimeMs,type=LogFlushStats",
        "Flushes of logs to the disk, and how long they take in milliseconds.",
        lambda view: view.flushes.look(),
    ),
    gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "kafka.log:name=OfflineLogDirectoryCount,type=LogManager",
        "Log directories that failed.",
        lambda view: len(view.services.data.log_manager.offline_log_dirs),
    ),
    _of_directory(
        "kafka_log_logmanager_logdirectoryoffline",
        "name=LogDirectoryOffline,type=LogManager",
        "1 where the log directory failed.",
        lambda view, path: int(not view.services.data.log_manager.directories[path].is_live),
    ),
    _of_directory(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "name=uncleanable-partitions-count,type=LogCleanerManager",
        "Logs that the cleaner has given up, until the broker starts again.",
        lambda view, path: len(view.services.data.log_manager.cleaner.uncleanable_partitions(path)),
    ),
    _of_directory(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        "name=uncleanable-bytes,type=LogCleanerManager",
        "Uncleaned bytes in those logs.",
        lambda view, path: view.services.data.log_manager.cleaner.uncleanable_bytes(path) if _gave_up(view, path) else 0,
    ),
    _cleaner(
        "max-dirty-percent",
        "LogCleanerManager",
        "Uncleaned part of the dirtiest log in percent, when the cleaner last looked for work.",
        lambda cleaner: 100 * cleaner.max_dirty_ratio,
    ),
    gauge(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "kafka.log:name=time-since-last-run-ms,type=LogCleanerManager",
        "How long ago the cleaner looked for logs to clean.",
        lambda view: elapsed_ms(view.services.clock) - view.services.data.log_manager.cleaner.last_run_ms,
    ),
    _cleaner(
        "cleaner-recopy-percent",
        "LogCleaner",
        "Part of the last cleaned log that was kept, in percent.",
        lambda cleaner: 100 * cleaner.last_stats.bytes_written / max(1, cleaner.last_stats.bytes_read),
    ),
    counter(
        "kafka_utils_throttler_cleaner_io_count",
        "kafka.utils:name=cleaner-io,type=Throttler",
        "Bytes that the cleaner has read and written, which log.cleaner.io.max.bytes.per.second limits; counted when a log is done.",
        lambda view: view.services.data.log_manager.cleaner.io_bytes,
    ),
    _cleaner("max-clean-time-secs", "LogCleaner", "How long the last cleaning took.", lambda cleaner: cleaner.last_stats.elapsed_seconds),
    _cleaner(
        "max-buffer-utilization-percent",
        "LogCleaner",
        "How full the offset map was in the last cleaning, in percent.",
        lambda cleaner: 100 * cleaner.last_stats.buffer_utilization,
    ),
    _cleaner(
        "max-compaction-delay-secs",
        "LogCleaner",
        "Longest time that a log was overdue by max.compaction.lag.ms, when the cleaner last looked for work.",
        lambda cleaner: cleaner.max_compaction_delay_ms / 1000,
    ),
)


def _gave_up(view: View, path: str) -> bool:
    # Adding up the bytes visits every log.
    return bool(view.services.data.log_manager.cleaner.uncleanable_partitions(path))
