"""Flushes logs while the broker runs: after a roll, after `flush.messages`, and after `flush.ms`.

Owned by `LogManager`. A log reports on the event loop that it is due, and a thread does the fsyncs. Back on the loop
the recovery point advances and `on_flushed` is called: after `flush.messages` the producer's answer waits for it.
Appends never wait.

Invariant: one flush at a time for a log, and for a log directory; a log that becomes due meanwhile is flushed again
afterwards.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from ottla.config.schema.key import LONG_MAX
from ottla.config.topic import FLUSH_MS
from ottla.storage.disk.background import Background
from ottla.storage.disk.rounds import Rounds
from ottla.storage.errors import SHORTAGES, LogDirFailure
from ottla.storage.log.flushes import FlushPlan
from ottla.storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

_BACKOFF_MS = 1000
"""Delay after a flush that failed for another reason than the disk, milliseconds."""

_MOST_UNDER_WAY = 16
"""Flushes that are prepared together, of all logs. A flush has its files open, and one for each directory is in progress."""


class Flusher:
    """All flushes of a broker."""

    __slots__ = (
        "_background",
        "_due_again",
        "_flushed_at_ms",
        "_held",
        "_on_failure",
        "_round_ms",
        "_rounds",
        "_started_ms",
        "_under_way",
        "_waiting",
        "on_flushed",
    )

    def __init__(self, background: Background, on_failure: Callable[[LogDirFailure], None], now_ms: int) -> None:
        """`on_failure` is called on the loop when the disk fails."""
        self.on_flushed: Callable[[PartitionLog], None] = _ignore
        self._background = background
        self._on_failure = on_failure
        self._started_ms = now_ms
        self._under_way: set[PartitionLog] = set()
        self._due_again: set[PartitionLog] = set()
        self._waiting: dict[PartitionLog, None] = {}
        """The logs that are flushed once fewer flushes are in progress, which hold files open."""
        self._held: set[PartitionLog] = set()
        self._rounds: Rounds[PartitionLog] = Rounds(background, "log-flusher", self._flush_if_old)
        self._round_ms = 0
        self._flushed_at_ms: dict[PartitionLog, int] = {}
        """Only for logs with a `flush.ms`."""

    def flush(self, partition_log: PartitionLog) -> None:
        """Flushes the due part of a log: everything after `flush.messages`, otherwise the completed segments."""
        if partition_log in self._under_way or partition_log in self._held:
            self._due_again.add(partition_log)
            return
        if len(self._under_way) >= _MOST_UNDER_WAY:
            self._waiting[partition_log] = None
            return
        only_complete = partition_log.flushes.due_offset <= partition_log.recovery_point
        up_to = partition_log.flushes.complete_up_to() if only_complete else None
        self._flush(partition_log, up_to)
        if up_to is not None and partition_log in self._under_way and up_to < partition_log.segments.active.base_offset:
            self._due_again.add(partition_log)

    def flush_by_age(self, logs: Iterable[PartitionLog], now_ms: int) -> None:
        """Flushes the logs whose last flush was `flush.ms` ago, with pauses; not while the last round is in progress.

        `now_ms` is that of `elapsed_ms`.
        """
        self._round_ms = now_ms
        self._rounds.begin(logs)

    def _flush_if_old(self, partition_log: PartitionLog) -> None:
        flush_ms = partition_log.config[FLUSH_MS]
        if flush_ms == LONG_MAX or partition_log.is_closed or partition_log in self._under_way or partition_log in self._held:
            return
        now_ms = self._round_ms
        if now_ms - self._flushed_at_ms.get(partition_log, self._started_ms) >= flush_ms:
            self._flushed_at_ms[partition_log] = now_ms
            self._flush(partition_log, None)

    def hold(self, partition_log: PartitionLog) -> None:
        """Begins no flush of the log until `release`, so that the log that is to replace it can become durable as far."""
        self._held.add(partition_log)

    def release(self, partition_log: PartitionLog) -> None:
        """Allows flushes again, and starts one that became due meanwhile. Does nothing if the log is not held."""
        if partition_log in self._held:
            self._held.remove(partition_log)
            if partition_log in self._due_again and partition_log not in self._under_way:
                self._due_again.remove(partition_log)
                self.flush(partition_log)

    def forget(self, partition_log: PartitionLog) -> None:
        """The log was removed: the outcome of a flush in progress is ignored."""
        self._flushed_at_ms.pop(partition_log, None)
        self._under_way.discard(partition_log)
        self._due_again.discard(partition_log)
        self._waiting.pop(partition_log, None)
        self._held.discard(partition_log)
        self._flush_next()

    def _flush(self, partition_log: PartitionLog, up_to: int | None) -> None:
        try:
            plan = partition_log.flushes.prepare(partition_log.log_end_offset if up_to is None else up_to)
        except LogDirFailure as failure:
            # Not within the append that made the flush due, because it continues with its partition.
            self._background.schedule("log-flusher", 0, 0, partial(self._on_failure, failure))
            if failure.passes:
                self._background.schedule("log-flusher", _BACKOFF_MS, 0, partial(self._flush_again, partition_log))
            return
        if plan is not None:
            self._under_way.add(partition_log)
            # One queue per directory: each is a disk of its own, and a slow one must not delay the others.
            name = f"flush-log {partition_log.log_dir}"
            self._background.submit(name, plan.run, lambda error: self._on_flushed(partition_log, plan, error))

    def _on_flushed(self, partition_log: PartitionLog, plan: FlushPlan, error: BaseException | None) -> None:
        if partition_log not in self._under_way or partition_log.is_closed:
            return
        self._under_way.discard(partition_log)
        is_due = partition_log in self._due_again
        self._due_again.discard(partition_log)
        if self._waiting:
            self._background.schedule("log-flusher", 0, 0, self._flush_next)
        if error is None:
            partition_log.flushes.finish(plan)
            self.on_flushed(partition_log)
            if is_due:
                self.flush(partition_log)
        elif isinstance(error, OSError) and error.errno not in SHORTAGES:
            self._on_failure(partition_log.files.failure(error))
        else:
            # Out of memory, for example. A remaining plan would block a move to another directory, and callers still
            # wait for the flush.
            partition_log.flushes.give_up(plan)
            log.error("flushing %s failed; it will be retried", partition_log.topic_partition, exc_info=error)
            self._background.schedule("log-flusher", _BACKOFF_MS, 0, lambda: self._flush_again(partition_log))

    def _flush_next(self) -> None:
        while self._waiting and len(self._under_way) < _MOST_UNDER_WAY:
            partition_log = next(iter(self._waiting))
            del self._waiting[partition_log]
            self._flush_again(partition_log)

    def _flush_again(self, partition_log: PartitionLog) -> None:
        if not partition_log.is_closed:
            self.flush(partition_log)


def _ignore(_: PartitionLog) -> None:
    pass
