"""Represents one cleaning of one log in the broker: the worker's job, and its segments.

Made by `LogCleaner` on the event loop.
"""

import logging
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.keys.cleaner import (
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
    LOG_CLEANER_IO_BUFFER_SIZE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_CLEANER_THREADS,
)
from ottla.config.topic import DELETE_RETENTION_MS, MAX_MESSAGE_BYTES
from ottla.storage.cleaner.choice import LogToClean
from ottla.storage.cleaner.job import CleanedGroup, CleaningJob, CleaningStats, SourceSegment
from ottla.storage.cleaner.process import CleanerWorker
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.yielding import yield_to_loop
from ottla.storage.log.discards import OnReplaced
from ottla.storage.producers.state import NONE
from ottla.storage.segment.leftovers import remove_cleaned
from ottla.storage.segment.swap import Swap

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_PRODUCERS_PER_REST = 2000
"""Producers collected between two yields, 0.5 ms."""


class WorkerLimits(NamedTuple):
    """The resources of one worker."""

    map_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float


def limits_of(config: BrokerConfig) -> WorkerLimits:
    """Each worker's share of the configured totals."""
    threads = config[LOG_CLEANER_THREADS]
    return WorkerLimits(
        map_bytes=min(config[LOG_CLEANER_DEDUPE_BUFFER_SIZE] // threads, 2**31 - 1),
        load_factor=config[LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
        io_buffer_bytes=config[LOG_CLEANER_IO_BUFFER_SIZE] // threads // 2,
        max_bytes_per_second=config[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND] / threads,
    )


class CleaningTask:
    """A job in progress."""

    __slots__ = ("_producers", "_segments", "_swap", "is_aborted", "job", "log", "worker")

    def __init__(self, found: LogToClean, worker: CleanerWorker, limits: WorkerLimits, now_ms: int) -> None:
        each = found.log
        first_uncleanable_offset = found.first_uncleanable_offset
        self.log = each
        self.worker = worker
        self.is_aborted = False
        self._swap: Swap | None = None
        self._producers = each.active_producers()
        self._segments = {segment.base_offset: segment for segment in each.segments if segment.base_offset < first_uncleanable_offset}
        self.job = CleaningJob(  # without the producers
            log=str(each.topic_partition),
            directory=each.directory,
            segments=tuple(SourceSegment(base_offset, segment.size) for base_offset, segment in self._segments.items()),
            later_segments=tuple(base_offset for base_offset in each.segments.bases if base_offset >= first_uncleanable_offset),
            first_dirty_offset=found.first_dirty_offset,
            first_uncleanable_offset=first_uncleanable_offset,
            producers=(),
            now_ms=now_ms,
            delete_retention_ms=each.config[DELETE_RETENTION_MS],
            segment_settings=each.segments.settings.to_numbers(),
            max_message_bytes=each.config[MAX_MESSAGE_BYTES],
            map_bytes=limits.map_bytes,
            load_factor=limits.load_factor,
            io_buffer_bytes=limits.io_buffer_bytes,
            max_bytes_per_second=limits.max_bytes_per_second,
        )

    def start(self) -> None:
        """Sends the job to the worker. Blocks, for a thread."""
        self.worker.start(self.job_with_producers())

    def job_with_producers(self) -> CleaningJob:
        """The job for the worker. For a thread: 100,000 producers take 35 ms.

        Producers may write meanwhile; their new last offsets are then above the offsets to clean.
        """
        found: list[tuple[int, int, int]] = []
        for entry in self._producers:
            last = entry.batches[-1:]  # a single step, so that no write of the loop can come in between
            found.append((entry.producer_id, last[0][1] if last else NONE, entry.producer_epoch))
            if len(found) % _PRODUCERS_PER_REST == 0:
                yield_to_loop()
        self._producers = []
        return self.job._replace(producers=tuple(found))

    def is_current(self, group: CleanedGroup) -> bool:
        """Whether the cleaned segments still belong to the log. They always should; otherwise records would be lost."""
        if self.log.is_closed:
            return False
        current = {id(segment) for segment in self.log.segments}
        return all(id(self._segments[base_offset]) in current for base_offset in group.sources)

    def put_in_place(self, group: CleanedGroup, then: OnReplaced) -> None:
        """Replaces the source segments by the cleaned one; calls `then` when that is durable. Raises LogDirFailure."""
        old = [self._segments[base_offset] for base_offset in group.sources]
        self._swap = self.log.replace_segments(group.base_offset, old, then)

    def remove_leftovers(self, filesystem: FileSystem) -> None:
        """Removes the unfinished files of the worker, which has ended. Blocks; may raise OSError."""
        if self._swap is not None:
            self._swap.run()  # the files that it is about to rename belong to the log
        for base_offset in self._segments:
            remove_cleaned(filesystem, self.job.directory, base_offset)

    def log_stats(self, stats: CleaningStats) -> None:
        """Logs the statistics."""
        seconds = max(stats.elapsed_seconds, 0.001)
        log.info(
            "%s: cleaned offsets %d to %d in %.1f s: %.1f MiB became %.1f (%.1f MiB/s), %d messages became %d; "
            "the map took %.1f s and is %.1f %% full",
            self.log.topic_partition,
            self.job.first_dirty_offset,
            stats.end_offset,
            seconds,
            stats.bytes_read / _MIB,
            stats.bytes_written / _MIB,
            stats.bytes_read / _MIB / seconds,
            stats.messages_read,
            stats.messages_written,
            stats.index_seconds,
            stats.buffer_utilization * 100,
        )
        if stats.invalid_messages_read:
            log.warning(
                "%s: %d messages without a key were found in the compacted log and dropped",
                self.log.topic_partition,
                stats.invalid_messages_read,
            )
        if stats.oversized_batches:
            log.warning(
                "%s: cleaning made %d batches larger than max.message.bytes=%d; consumers need fetch sizes to match",
                self.log.topic_partition,
                stats.oversized_batches,
                self.job.max_message_bytes,
            )
