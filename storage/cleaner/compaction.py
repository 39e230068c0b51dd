"""Schedules the cleaning of compacted logs: keeps the latest record of every key, and deletes old segments of those
logs.

`LogManager` owns one `LogCleaner`. It runs on the event loop and only decides: which log is cleaned next, when segments
are replaced, how far a log is clean. `log.cleaner.threads` workers do the reading and writing; each is a process
(`process`) that exists only while there is a log to clean. Workers are polled, so that no thread waits for them.

Invariants: at most one worker cleans a log; segments are replaced on the loop only, and only if the cleaning was not
aborted; the checkpoint of a log never exceeds its cleaned offsets. Callers that truncate, delete or lose a log report
it (`on_truncated`, `on_deleted`, `on_log_dir_failure`).
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from ottla.config.broker import BrokerConfig
from ottla.config.keys.cleaner import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
    LOG_CLEANER_IO_BUFFER_SIZE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_CLEANER_THREADS,
)
from ottla.config.keys.log import MESSAGE_MAX_BYTES
from ottla.pauses import begin, pause
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner.checkpoints import CleanerCheckpoints
from ottla.storage.cleaner.choice import LogToClean, is_compacted, log_to_clean, read_ages
from ottla.storage.cleaner.job import CleanedGroup, CleaningStats
from ottla.storage.cleaner.process import CleanerMessage, CleanerProcess, CleanerWorker, CleaningEnded
from ottla.storage.cleaner.task import CleaningTask, limits_of
from ottla.storage.disk.background import Background
from ottla.storage.disk.clock import Clock, elapsed_ms
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import LogDirFailure, StorageError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import DELETED_TOGETHER, delete_old_segments
from ottla.storage.segment.cold_lookups import ColdRead, NotCached
from ottla.storage.upkeep.log_checkpoints import LogCheckpoints

log = logging.getLogger(__name__)

_FIRST_POLL_MS = 2
_LAST_POLL_MS = 50
_IDLE_MS = 30_000
_MOST_READS = 1000
"""Reads after which a log is inspected although its segments are not in the page cache: memory must be very short."""
_TRIES = 3
"""Failed attempts in a row after which a log is uncleanable: the log itself may kill the worker."""
_RESTART_KEYS = (
    LOG_CLEANER_THREADS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
    LOG_CLEANER_IO_BUFFER_SIZE,
    MESSAGE_MAX_BYTES,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_CLEANER_BACKOFF_MS,
)


class LogCleaner:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        filesystem: FileSystem,
        clock: Clock,
        background: Background,
        checkpoints: LogCheckpoints,
        *,
        logs: Callable[[], Iterable[PartitionLog]],
        on_failure: Callable[[LogDirFailure], None],
        new_worker: Callable[[], CleanerWorker] = CleanerProcess,
        is_moving: Callable[[TopicPartition], bool] = lambda topic_partition: False,
    ) -> None:
        """`logs` returns the logs that may be cleaned; `on_failure` is called on the loop when the disk fails. `is_moving` tells whether
        there is a copy of a log that is to replace it."""
        self.checkpoints = CleanerCheckpoints(filesystem, checkpoints, logs, on_failure)
        self.last_stats = CleaningStats()
        self.io_bytes = 0
        """Bytes read and written by all completed cleanings."""
        self.max_dirty_ratio = 0.0
        """The dirty ratio of the dirtiest log at the last look."""
        self.max_compaction_delay_ms = 0
        self.last_run_ms = elapsed_ms(clock)
        self._config = config
        self._fs = filesystem
        self._clock = clock
        self._background = background
        self._logs = logs
        self._on_failure = on_failure
        self._new_worker = new_worker
        self._is_moving = is_moving
        self._tasks: dict[TopicPartition, CleaningTask] = {}
        self._paused: dict[TopicPartition, int] = {}
        self._early_ends: dict[TopicPartition, int] = {}
        """Number of cleanings in a row that ended early for an unknown reason, by log."""
        self._retries_ms: dict[TopicPartition, int] = {}
        """When a log whose cleaning ended early may be tried again. Others are cleaned meanwhile."""
        self._demanded: dict[TopicPartition, Callable[[], None]] = {}
        """Logs to clean however clean they are, each with its caller's callback."""
        self._reads: dict[TopicPartition, int] = {}
        """Logs whose timestamps a thread is about to read from the disk, and the number of reads so far."""
        self._uncleanable: dict[str, set[TopicPartition]] = {}
        self._idle: list[CleanerWorker] = []
        self._idle_since_ms = 0
        self._is_looking = False
        self._candidates: list[LogToClean] = []
        self._dirtiest, self._longest_delay_ms = 0.0, 0  # of the logs inspected in this round
        self._wakes = 0
        self._is_stopped = True

    def start(self) -> None:
        """Starts the cleaner; on the event loop, once the logs are loaded. Does nothing without `log.cleaner.enable`."""
        if not self._config[LOG_CLEANER_ENABLE]:
            log.info("the log cleaner is off (log.cleaner.enable): compacted topics will grow")
            return
        self._is_stopped = False
        self.checkpoints.report_failures()
        self._config.on_change(self._on_config_change, _RESTART_KEYS)
        self._wake_in(0)

    def shutdown(self) -> None:
        """Aborts all cleanings and ends the workers. Blocks; called after the background has stopped."""
        self._is_stopped = True
        for task in self._tasks.values():
            task.is_aborted = True
            task.worker.kill()
        for worker in (*(task.worker for task in self._tasks.values()), *self._idle):
            worker.close()
        for task in self._tasks.values():
            try:
                task.remove_leftovers(self._fs)
            except OSError as error:
                log.warning("%s: %s; the next start removes the cleaner's temporary files", task.log.directory, error)
        self._tasks.clear()
        self._idle.clear()

    # ---- events of other components

    def demand(self, topic_partition: TopicPartition, then: Callable[[], None]) -> None:
        """Clean this log soon, however clean it is, up to its active segment. `then` is called when nothing is left to clean, or at once
        if the cleaner is off."""
        if self._is_stopped:
            then()
            return
        self._demanded[topic_partition] = then
        self._wake_in(0)

    def _satisfy(self, topic_partition: TopicPartition) -> None:
        then = self._demanded.pop(topic_partition, None)
        if then is not None:
            then()

    def abort_cleaning(self, topic_partition: TopicPartition, reason: str) -> None:
        """Aborts the cleaning of this log, if one is in progress. The cleaning does not change the log after this
        returns."""
        task = self._tasks.get(topic_partition)
        if task is not None and not task.is_aborted:
            log.info("%s: the cleaning is aborted: %s", topic_partition, reason)
            task.is_aborted = True
            task.worker.kill()

    def pause_cleaning(self, topic_partition: TopicPartition, reason: str) -> None:
        """Aborts the cleaning of the log, and prevents further ones until `resume_cleaning` was called as often as
        this."""
        self._paused[topic_partition] = self._paused.get(topic_partition, 0) + 1
        self.abort_cleaning(topic_partition, reason)

    def resume_cleaning(self, topic_partition: TopicPartition) -> None:
        """Reverts one `pause_cleaning`."""
        left = self._paused.pop(topic_partition) - 1
        if left:
            self._paused[topic_partition] = left

    def on_truncated(self, each: PartitionLog) -> None:
        """The log was truncated at its end: offsets that the worker has read may be gone, and clean offsets may be written again."""
        task = self._tasks.get(each.topic_partition)
        if task is not None and task.log is each:
            begins_anew = each.segments.first.base_offset > task.job.segments[0].base_offset
            if begins_anew or each.log_end_offset < task.job.first_uncleanable_offset:
                self.abort_cleaning(each.topic_partition, "it was truncated")
        self.checkpoints.truncate(each, each.segments.active.base_offset)

    def on_deleted(self, each: PartitionLog) -> None:
        """The log was deleted."""
        task = self._tasks.get(each.topic_partition)
        if task is not None and task.log is each:
            self.abort_cleaning(each.topic_partition, "it was deleted")
        self._uncleanable.get(each.log_dir, set()).discard(each.topic_partition)
        self._early_ends.pop(each.topic_partition, None)
        self._retries_ms.pop(each.topic_partition, None)
        self._satisfy(each.topic_partition)
        self.checkpoints.remove(each)

    def on_log_dir_failure(self, log_dir: str) -> None:
        """The directory is offline."""
        for topic_partition, task in self._tasks.items():
            if task.log.log_dir == log_dir:
                self.abort_cleaning(topic_partition, f"{log_dir} is offline")
        self._uncleanable.pop(log_dir, None)
        self.checkpoints.on_log_dir_failure(log_dir)

    def uncleanable_partitions(self, log_dir: str) -> frozenset[TopicPartition]:
        """The partitions whose cleaning failed because of their logs; they are not tried again until the broker
        restarts."""
        return frozenset(self._uncleanable.get(log_dir, ()))

    def uncleanable_bytes(self, log_dir: str) -> int:
        """Cleanable bytes of the uncleanable partitions, for metrics. Adds up sizes of segments."""
        partitions = self._uncleanable.get(log_dir)
        logs = [each for each in self._logs() if each.topic_partition in partitions and each.log_dir == log_dir] if partitions else []
        now_ms = self._clock.now_ms()
        total = 0
        for each in logs:
            if each.truncations.current is None:
                with suppress(RecordFormatError, StorageError, OSError):  # the damage may be where the timestamps are read
                    total += log_to_clean(each, self.checkpoints.get(each), now_ms).cleanable_bytes
        return total

    def _on_config_change(self, changed: frozenset[str]) -> None:
        for topic_partition in list(self._tasks):
            self.abort_cleaning(topic_partition, f"the configuration changed: {', '.join(sorted(changed))}")
        self._wake_in(0)

    # ---- choosing a log

    def _wake_in(self, delay_ms: int) -> None:
        """Schedules the next look for a log to clean; replaces an earlier schedule."""
        self._wakes += 1
        wake = self._wakes
        self._background.schedule("log-cleaner", delay_ms, 0, lambda: self._on_wake(wake))

    def _on_wake(self, wake: int) -> None:
        if wake == self._wakes and not self._is_stopped and not self._is_looking:
            now_ms, self.last_run_ms = self._clock.now_ms(), elapsed_ms(self._clock)
            self._candidates = []
            self._dirtiest, self._longest_delay_ms = 0.0, 0
            self._is_looking = True
            begin(self._look_at_all(now_ms))

    async def _look_at_all(self, now_ms: int) -> None:
        """Inspects all logs, with pauses, because a broker may have thousands."""
        for each in list(self._logs()):
            if is_compacted(each) and each.topic_partition not in self._reads:
                self._look_at(each, now_ms)
            await pause()
            if self._is_stopped or self._background.is_closed:
                return
        self._is_looking = False
        self._take_filthiest()

    def _look_at(self, each: PartitionLog, now_ms: int) -> None:
        """Deletes at most DELETED_TOGETHER old segments of the log, and decides whether it is to be cleaned."""
        reads = self._reads.pop(each.topic_partition, 0)
        may_wait = reads >= _MOST_READS
        if each.is_closed or each.truncations.current is not None or not self._may_clean(each):
            return
        try:
            delete_old_segments(each, now_ms, at_most=DELETED_TOGETHER, may_wait=may_wait)
            if not may_wait:
                read_ages(each, self.checkpoints.get(each))
            found = log_to_clean(each, self.checkpoints.get(each), now_ms)
        except (ColdRead, NotCached) as cold:
            self._reads[each.topic_partition] = reads + 1
            self._background.submit("log-cleaner-warm", cold.warm, lambda error: self._look_again(each))
        except LogDirFailure as failure:
            self._on_failure(failure)
        except OSError as error:
            self._on_failure(each.files.failure(error))
        except (RecordFormatError, StorageError) as error:  # damage in one log must not end the search in all
            self._give_up(each, str(error))
        except Exception as error:  # a fault of this broker: no later round would begin
            log.exception("%s: inspecting it for the cleaner failed", each.topic_partition)
            self._give_up(each, repr(error))
        else:
            if found.is_checkpoint_wrong:
                self.checkpoints.update(each, found.first_dirty_offset)
            if found.clean_bytes + found.cleanable_bytes:
                self._dirtiest = max(self._dirtiest, found.cleanable_ratio)
                self._longest_delay_ms = max(self._longest_delay_ms, found.compaction_delay_ms)
            if found.is_cleanable or (each.topic_partition in self._demanded and found.cleanable_bytes):
                self._candidates.append(found)
            else:
                self._satisfy(each.topic_partition)

    def _look_again(self, each: PartitionLog) -> None:
        """Goes on after a thread has read. The next round takes the log, unless this one still lasts."""
        if not self._is_stopped and not self._background.is_closed:
            self._look_at(each, self._clock.now_ms())

    def _may_clean(self, each: PartitionLog) -> bool:
        topic_partition = each.topic_partition
        if topic_partition in self._tasks or topic_partition in self._paused:
            return False
        if self._is_moving(topic_partition):
            # The copy begins with records that a cleaning would remove. It will count as clean as this log, and then a tombstone would go
            # before the records that it hides.
            return False
        if topic_partition in self._retries_ms:
            if elapsed_ms(self._clock) < self._retries_ms[topic_partition]:
                return False
            del self._retries_ms[topic_partition]
        return topic_partition not in self._uncleanable.get(each.log_dir, ())

    def _take_filthiest(self) -> None:
        self.max_dirty_ratio, self.max_compaction_delay_ms = self._dirtiest, self._longest_delay_ms
        candidates = sorted(self._candidates, key=self._urgency, reverse=True)
        self._candidates = []
        for found in candidates:
            if len(self._tasks) >= self._config[LOG_CLEANER_THREADS]:
                return
            if self._may_clean(found.log) and not found.log.is_closed and found.log.truncations.current is None:
                self._clean(found)
        if len(self._tasks) < self._config[LOG_CLEANER_THREADS]:
            self._rest()

    def _urgency(self, each: LogToClean) -> tuple[bool, float]:
        return each.log.topic_partition in self._demanded, each.cleanable_ratio

    def _rest(self) -> None:
        backoff_ms = self._config[LOG_CLEANER_BACKOFF_MS]
        if self._idle and not self._tasks and elapsed_ms(self._clock) - self._idle_since_ms + backoff_ms > _IDLE_MS:
            self._dismiss(self._idle)
            self._idle = []
        self._wake_in(max(backoff_ms, _FIRST_POLL_MS))

    # ---- cleaning

    def _clean(self, found: LogToClean) -> None:
        worker = self._idle.pop() if self._idle else self._new_worker()
        task = CleaningTask(found, worker, limits_of(self._config), self._clock.now_ms())
        self._tasks[found.log.topic_partition] = task
        self._background.submit("log-cleaner-start", task.start, lambda error: self._on_started(task, error))

    def _on_started(self, task: CleaningTask, error: BaseException | None) -> None:
        if error is not None:
            log.error("%s: the cleaner could not begin: %s", task.log.topic_partition, error)
            self._fail(task, CleaningEnded(str(error)))
            return
        if task.is_aborted:
            task.worker.kill()
        self._poll_in(task, _FIRST_POLL_MS)

    def _poll_in(self, task: CleaningTask, delay_ms: int) -> None:
        self._background.schedule("log-cleaner-poll", delay_ms, 0, lambda: self._poll(task, delay_ms))

    def _poll(self, task: CleaningTask, delay_ms: int) -> None:
        if self._is_stopped:
            return
        try:
            message = task.worker.poll()
            if isinstance(message, CleanedGroup):
                self._put_in_place(task, message)
                return
        except Exception as error:  # a fault of this broker: the log and the worker would never be free again
            log.exception("%s: its cleaning failed", task.log.topic_partition)
            message = CleaningEnded(repr(error))
        if message is None:
            self._poll_in(task, min(delay_ms * 2, _LAST_POLL_MS))
        else:
            self._end(task, message)

    def _put_in_place(self, task: CleaningTask, group: CleanedGroup) -> None:
        each = task.log

        def proceed(failure: StorageError | None) -> None:
            # Only now: readers open files by their names, and the offsets are checkpointed as clean in the end.
            if failure is not None:  # it was already reported
                self.abort_cleaning(each.topic_partition, str(failure))
            elif not task.is_aborted:
                task.worker.proceed()
            self._poll_in(task, _FIRST_POLL_MS)

        if task.is_aborted:
            self._poll_in(task, _FIRST_POLL_MS)
        elif each.truncations.current is not None or not task.is_current(group):  # a truncation reads the remaining log in a thread
            self.abort_cleaning(each.topic_partition, "its segments have changed")
            self._poll_in(task, _FIRST_POLL_MS)
        else:
            try:
                task.put_in_place(group, proceed)
            except LogDirFailure as failure:
                self._on_failure(failure)
                proceed(failure)

    def _end(self, task: CleaningTask, message: CleanerMessage) -> None:
        if task.is_aborted or not isinstance(message, CleaningStats):
            self._fail(task, self._judged(task, message))
            return
        self._early_ends.pop(task.log.topic_partition, None)
        self.last_stats = message
        self.io_bytes += message.map_bytes_read + message.bytes_read + message.bytes_written
        task.log_stats(message)
        self.checkpoints.update(task.log, message.end_offset)
        self._satisfy(task.log.topic_partition)
        self._done_with(task, is_worker_fit=True)
        self._wake_in(0)

    def _judged(self, task: CleaningTask, message: CleanerMessage) -> CleanerMessage:
        """Declares the log at fault when its cleaning ended early too often."""
        if task.is_aborted or not isinstance(message, CleaningEnded) or message.is_log_at_fault or message.disk_failure_path is not None:
            return message
        topic_partition = task.log.topic_partition
        tries = self._early_ends[topic_partition] = self._early_ends.get(topic_partition, 0) + 1
        if tries < _TRIES:
            return message
        del self._early_ends[topic_partition]
        return CleaningEnded(f"{message.reason}, {tries} times in a row", is_log_at_fault=True)

    def _fail(self, task: CleaningTask, message: CleanerMessage) -> None:
        each = task.log
        if not task.is_aborted and isinstance(message, CleaningEnded):
            if message.disk_failure_path is not None:
                self._on_failure(LogDirFailure(each.log_dir, message.disk_failure_path, message.reason))
            elif message.is_log_at_fault:
                self._give_up(each, message.reason)
            else:
                log.warning("%s: the cleaning ended early and will be retried: %s", each.topic_partition, message.reason)

        def then(error: BaseException | None) -> None:
            if isinstance(error, OSError) and not task.is_aborted:
                self._on_failure(each.files.failure(error))
            self._done_with(task, is_worker_fit=False)
            is_over = task.is_aborted or (isinstance(message, CleaningEnded) and message.is_log_at_fault)  # it is not tried again
            self._wake_in(0 if is_over or self._puts_off(each) else self._config[LOG_CLEANER_BACKOFF_MS])

        def clean_up() -> None:
            task.worker.close()
            task.remove_leftovers(self._fs)

        self._background.submit("log-cleaner-end", clean_up, then)

    def _puts_off(self, each: PartitionLog) -> bool:
        """Lets a log wait whose cleaning ended early. Whether others are cleaned meanwhile: not if a second one ended early, or none could
        begin, because their logs are hardly at fault then."""
        is_first = not self._retries_ms and each.topic_partition in self._early_ends
        self._retries_ms[each.topic_partition] = elapsed_ms(self._clock) + self._config[LOG_CLEANER_BACKOFF_MS]
        return is_first

    def _give_up(self, each: PartitionLog, reason: str) -> None:
        """Do not clean the log again until the next start."""
        self._satisfy(each.topic_partition)
        self._uncleanable.setdefault(each.log_dir, set()).add(each.topic_partition)
        log.warning(
            "%s: it cannot be cleaned and will grow (%s); %d partitions of %s are in this state. `ottla dump-log --verify %s` "
            "shows what is wrong in it; the next start tries again",
            each.topic_partition, reason, len(self._uncleanable[each.log_dir]), each.log_dir, each.directory,
        )  # fmt: skip

    def _done_with(self, task: CleaningTask, *, is_worker_fit: bool) -> None:
        del self._tasks[task.log.topic_partition]
        if is_worker_fit:
            self._idle.append(task.worker)
            self._idle_since_ms = elapsed_ms(self._clock)

    def _dismiss(self, workers: Iterable[CleanerWorker]) -> None:
        for worker in workers:
            self._background.submit("log-cleaner-end", worker.close, _nothing)


def _nothing(error: BaseException | None) -> None:
    pass
