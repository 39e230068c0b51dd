"""Manages all logs of a broker: opens them at start, closes them at the end, and finds, creates and deletes single logs
in between.

The server makes one and calls, in this order, `open` (directories: created, locked), `identify` (they belong to this
broker), `load` (logs are opened; blocks, any thread), `start` (timers), and at the end `shutdown` (blocks). The replica
manager calls the other methods on the event loop.

Invariants: a partition has at most one current log; all work that waits for the disk runs in threads, except at start
and shutdown; a failed directory is offline until the next start, and `on_log_dir_failure` was called for it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from random import Random

from ottla.config.broker import BrokerConfig
from ottla.config.keys.log import (
    LOG_DIRS,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_INITIAL_TASK_DELAY_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    LOG_SEGMENT_DELETE_DELAY_MS,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
)
from ottla.config.keys.transactions import (
    PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS,
    PRODUCER_ID_EXPIRATION_MS,
    TRANSACTION_PARTITION_VERIFICATION_ENABLE,
)
from ottla.config.topic import TopicConfig
from ottla.config.validation import log_dirs
from ottla.pauses import begin
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner.choice import is_compacted
from ottla.storage.cleaner.compaction import LogCleaner
from ottla.storage.cleaner.process import CleanerProcess, CleanerWorker
from ottla.storage.disk.background import Background
from ottla.storage.disk.clock import Clock, elapsed_ms
from ottla.storage.disk.directory_names import DirectoryKind, suffixed_name
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.partition_metadata import ZERO_UUID
from ottla.storage.disk.rounds import visit_all
from ottla.storage.disk.start_errors import NoUsableLogDirectory
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.context import LimitedLines, LogContext
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import take_topic_id
from ottla.storage.log.recovery import open_log
from ottla.storage.manager.future_logs import FutureLogs
from ottla.storage.manager.log_closing import close_logs
from ottla.storage.manager.log_directories import LogDirectories, LogDirectory
from ottla.storage.manager.log_dirs_description import LogDirDescription, describe
from ottla.storage.manager.log_loading import LogLoading, Progress
from ottla.storage.manager.log_moves import LogMoves
from ottla.storage.manager.new_logs import NewLogs
from ottla.storage.segment.spare_files import SpareFiles
from ottla.storage.upkeep.directory_renames import DirectoryRename, DirectoryRenames
from ottla.storage.upkeep.flusher import Flusher
from ottla.storage.upkeep.idle_files import IdleFiles
from ottla.storage.upkeep.log_checkpoints import LogCheckpoints
from ottla.storage.upkeep.log_deletion_schedule import LogDeletions
from ottla.storage.upkeep.partition_events import PartitionEvents
from ottla.storage.upkeep.producer_expirations import ProducerExpirations
from ottla.storage.upkeep.reservations import Reservations
from ottla.storage.upkeep.retention_checks import RetentionChecks
from ottla.storage.upkeep.roll_completion import RollCompletion

log = logging.getLogger(__name__)

_NEVER_MS = 365 * 24 * 60 * 60 * 1000


def _ignore() -> None:
    pass


class LogManager:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        topic_config_of: Callable[[str], TopicConfig],
        filesystem: FileSystem,
        clock: Clock,
        background: Background,
        *,
        random: Random,
        new_cleaner: Callable[[], CleanerWorker] = CleanerProcess,
        on_no_log_dir: Callable[[], None] = _ignore,
        needs_all_directories: bool = False,
    ) -> None:
        """`on_no_log_dir` is called when the last directory has failed, or any if `needs_all_directories`: the broker has to stop, or the
        controller would not learn of it. Raises DuplicateLogDirectory."""
        self.directories = LogDirectories(log_dirs(config[LOG_DIRS]), filesystem)
        self.on_log_dir_failure: Callable[[str, str], None] = self.handle_log_dir_failure
        """Called on the loop with a directory that failed in the background, and the reason. A replacement must call
        `handle_log_dir_failure`."""
        self._shortages = LimitedLines(clock, log.warning, "%d more operations failed by a lack of descriptors, without lines")
        self.on_truncated: Callable[[PartitionLog], None] = lambda log: None
        """Called when a log was cut at its end."""
        self.on_no_log_dir = on_no_log_dir
        self.needs_all_directories = needs_all_directories
        self.topic_config_of = topic_config_of
        """The effective configuration of a topic, by its name."""
        self.background = background
        self.moves = LogMoves(self, config, clock, background)
        self.new_logs = NewLogs(self)
        self._config = config
        self._fs = filesystem
        self._clock = clock
        self._random = random
        self._current: dict[TopicPartition, PartitionLog] = {}
        self._checkpoints = LogCheckpoints(filesystem, background, self.all_logs, self.report_failure)
        self.flusher = Flusher(background, self.report_failure, elapsed_ms(clock))
        self.renames = DirectoryRenames(background, self.report_failure, self._checkpoints.when_written)
        self.events = PartitionEvents(background)
        self._deletions = LogDeletions(filesystem, background, self.events, self.report_failure)
        self._spare_files = SpareFiles(filesystem, background)
        self._left_by_deletions: list[tuple[str, str]] = []
        self._retention = RetentionChecks(background, clock, self._applies_retention, self.report_failure)
        self._expirations = ProducerExpirations(background, clock)
        self.progress = Progress()
        self.rolls = RollCompletion(background, self._spare_files, self.report_failure)
        self.context = self._new_context()
        self.cleaner = LogCleaner(
            config,
            filesystem,
            clock,
            background,
            self._checkpoints,
            logs=self.current_logs,
            on_failure=self.report_failure,
            new_worker=new_cleaner,
            is_moving=lambda topic_partition: self.get(topic_partition, future=True) is not None,
        )
        self.future_logs = FutureLogs(
            self._current,
            self.directories,
            self._checkpoints,
            self.cleaner.checkpoints,
            self.renames,
            random,
            self.report_failure,
            lambda gone, at_once: self.remove_log(gone, at_once=at_once),
            lambda topic_partition: self.new_logs.on_deleted(topic_partition, future=True),
        )

    def _new_context(self) -> LogContext:
        background = self.background
        return LogContext(
            self._fs,
            self._clock,
            background,
            random=self._random.random,
            producer_id_expiration_ms=self._config[PRODUCER_ID_EXPIRATION_MS],
            on_flush_due=self.flusher.flush,
            on_truncated=self._on_truncated,
            on_failure=self.report_failure,
            on_topic_id_due=self._checkpoints.write_topic_id,
            submit=background.submit,
            schedule=background.schedule,
            when_checkpointed=self._checkpoints.when_written,
            take_spare_file=self._spare_files.take,
            reserve=Reservations(self._fs, background.submit).reserve,
            complete_roll_later=self.rolls.complete_later,
            verifies_transactions=lambda: self._config[TRANSACTION_PARTITION_VERIFICATION_ENABLE],
        )

    # ---- start and end

    @property
    def stored_broker_id(self) -> int | None:
        """The broker id stored in the directories, once they are open."""
        return self.directories.stored_broker_id

    def open(self) -> None:
        """Creates and locks the log directories. Raises LogDirectoryError. Blocks."""
        self.directories.open()

    def identify(self, cluster_id: str, broker_id: int) -> None:
        """Checks that the directories belong to this broker; marks new ones. Raises LogDirectoryError. Blocks."""
        try:
            self.directories.identify(cluster_id, broker_id, self._clock.now_ms())
        except BaseException:
            self.directories.unlock()
            raise

    def stop_loading(self) -> None:
        """Has `load` raise LoadingStopped soon, since its broker is to end. From any thread."""
        self.progress.is_stopped = True

    def load(self) -> None:
        """Opens every log, after a crash with recovery. Raises LogDirectoryError. Blocks."""
        began = self._clock.monotonic()
        try:
            threads = self._config[NUM_RECOVERY_THREADS_PER_DATA_DIR]
            loaded = LogLoading(self.directories, self.context, self.topic_config_of, threads, self.progress).run()
        except BaseException:
            self.directories.unlock()
            raise
        self._current.update(loaded.current)
        self.future_logs.logs.update(loaded.future)
        self._left_by_deletions = loaded.deleted
        for each in self.all_logs():
            self._checkpoints.watch(each)
        self.cleaner.checkpoints.load([directory.path for directory in self.directories.live])
        log.info("opened %d logs in %d ms", len(self._current) + len(self.future_logs.logs), (self._clock.monotonic() - began) * 1000)

    def start(self) -> None:
        """Starts the background work. On the event loop, after `load` and `FutureLogs.cut`."""
        config = self._config
        self._checkpoints.write_epochs()
        for log_dir, path in self._left_by_deletions:
            self._deletions.remove_later(log_dir, path, config[LOG_SEGMENT_DELETE_DELAY_MS])
        for path in self._live_paths():
            self._spare_files.fill(path)
        self._every("log-retention", config[LOG_RETENTION_CHECK_INTERVAL_MS], self.check_retention)
        self._every("log-flusher", config[LOG_FLUSH_SCHEDULER_INTERVAL_MS], self.flush_dirty_logs)
        self._every("recovery-point-checkpoint", config[LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS], self.checkpoint_recovery_points)
        self._every("start-offset-checkpoint", config[LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS], self.checkpoint_log_start_offsets)
        # Not soon after the start, as in Apache Kafka: producers that waited for it may resend batches with old
        # timestamps.
        expiration_interval_ms = config[PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS]
        self.background.schedule("producer-expiration", expiration_interval_ms, expiration_interval_ms, self.remove_expired_producers)
        IdleFiles(self._fs, self.background, self.all_logs).start()
        self.cleaner.start()

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Flushes and closes every log and marks the directories as cleanly shut down. Blocks; no other method may be
        called afterwards.

        The background must have stopped, except for work in progress in threads. A directory whose logs were not all
        opened is left unchanged: after a failed start the next one finds everything as it was.
        """
        self.events.close()
        # A replacement may need turns of the loop. A directory that fails from here on must not be marked as cleanly shut down.
        self.on_log_dir_failure = self.handle_log_dir_failure
        self.cleaner.shutdown()
        self.renames.finish_all()
        self.new_logs.finish()
        for each in self.all_logs():
            each.leader_epochs.on_change = None
        self._checkpoints.run_now()
        for directory in [each for each in self.directories.live if each.is_loaded]:
            self._spare_files.close(directory.path)
            logs = [each for each in self.all_logs() if each.log_dir == directory.path]
            try:
                closed = close_logs(self._fs, directory.path, logs, self._config[NUM_RECOVERY_THREADS_PER_DATA_DIR])
                self._checkpoints.write_all(directory.path, logs)
                if closed:
                    self.directories.write_clean_shutdown(directory, broker_epoch)
            except OSError as error:
                log.error("%s: the next start will check its logs, because they cannot be marked as closed: %s", directory.path, error)
        self._current.clear()
        self.future_logs.logs.clear()
        self.directories.unlock()
        self._fs.relieve_with(None)

    # ---- the logs

    def get(self, topic_partition: TopicPartition, *, future: bool = False) -> PartitionLog | None:
        """The log of a partition, or (`future`) the one that is to replace it from another directory."""
        return (self.future_logs.logs if future else self._current).get(topic_partition)

    def all_logs(self) -> Iterator[PartitionLog]:
        """The current and future logs."""
        return chain(self._current.values(), self.future_logs.logs.values())

    def current_logs(self) -> Iterable[PartitionLog]:
        """The current logs."""
        return self._current.values()

    def __len__(self) -> int:
        return len(self._current)

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: bytes = ZERO_UUID, *, is_new: bool = False, log_dir: str | None = None
    ) -> PartitionLog:
        """The log of a partition; a new one is created in `log_dir`, or in the online directory with the fewest logs.

        Unless `is_new`, the replica existed before. So when a directory is offline, the log may be in it: raises
        LogDirFailure. A log without a topic id gets `topic_id`; a different one is for the caller to detect.
        """
        found = self._current.get(topic_partition)
        if found is None:
            found = self._create(topic_partition, is_new=is_new, log_dir=log_dir)
        if found.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
            take_topic_id(found, topic_id)
        return found

    def delete(self, topic_partition: TopicPartition, *, is_stray: bool = False) -> list[DirectoryRename]:
        """Removes the partition's log: renames it soon (`renames.when_done`), and deletes it after
        `log.segment.delete.delay.ms`.

        A stray log is renamed and kept. Raises LogDirFailure when the log may be in an offline directory.
        """
        for future in (False, True):
            self.new_logs.on_deleted(topic_partition, future=future)
        logs = [logs.pop(topic_partition) for logs in (self._current, self.future_logs.logs) if topic_partition in logs]
        if not logs and self.directories.offline:
            offline = self.directories.offline[0]
            raise LogDirFailure(offline, offline, f"{topic_partition} cannot be deleted, because it may be in this offline directory")
        self.moves.stop(topic_partition)
        return [self.remove_log(gone, is_stray=is_stray) for gone in logs]

    def update_config(self, log: PartitionLog, config: TopicConfig) -> None:
        """The configuration of the log's topic changed. Aborts a cleaning if the log is no longer compacted."""
        was_compacted = is_compacted(log)
        log.update_config(config)
        if was_compacted and not is_compacted(log):
            self.cleaner.abort_cleaning(log.topic_partition, "its cleanup.policy is no longer compact")

    def _create(self, topic_partition: TopicPartition, *, is_new: bool, log_dir: str | None) -> PartitionLog:
        offline = self.directories.offline
        if offline and not is_new:
            raise LogDirFailure(offline[0], offline[0], f"the log of {topic_partition} may be in this offline directory")
        log_dir = log_dir or self.directories.preferred.get(topic_partition)
        if log_dir is not None:
            self.directories.check_live(log_dir)
            return self._create_in(self.directories[log_dir], topic_partition)
        for directory in self.directories.by_fewest_logs():
            try:
                return self._create_in(directory, topic_partition)
            except LogDirFailure as failure:
                if failure.passes:
                    raise
                self.report_failure(failure)
        raise LogDirFailure(next(iter(self.directories.all)), str(topic_partition), "no log directory is left to create it in")

    def _create_in(self, directory: LogDirectory, topic_partition: TopicPartition) -> PartitionLog:
        self.renames.finish(path := f"{directory.path}/{topic_partition}")
        config = self.topic_config_of(topic_partition.topic)
        created = open_log(self.context, topic_partition, directory.path, config, is_new=not self._fs.exists(path))
        self.take_in(created, directory)
        return created

    def take_in(self, created: PartitionLog, directory: LogDirectory, topic_id: bytes = ZERO_UUID) -> None:
        """Adds the log of a new partition, with this topic id in its file, which is served from now on."""
        topic_partition = created.topic_partition
        self._current[topic_partition] = created
        self.directories.preferred.pop(topic_partition, None)
        directory.log_count += 1
        self._checkpoints.watch(created)
        self._checkpoints.on_created(created)
        if topic_id not in (ZERO_UUID, created.topic_id):
            take_topic_id(created, topic_id)
        self.events.add(f"created in {directory.path}", topic_partition)

    # ---- directories

    @property
    def offline_log_dirs(self) -> list[str]:
        """The failed directories."""
        return self.directories.offline

    def handle_log_dir_failure(self, log_dir: str, reason: str = "a disk error") -> None:
        """The directory failed: takes it offline and closes its logs. May be called twice."""
        if not self.directories.fail(log_dir, reason):
            return
        self._spare_files.close(log_dir)
        self.moves.on_log_dir_failure(log_dir)
        self.cleaner.on_log_dir_failure(log_dir)
        gone = [each for each in self.all_logs() if each.log_dir == log_dir]
        for logs in (self._current, self.future_logs.logs):
            for each in [each for each in logs.values() if each.log_dir == log_dir]:
                del logs[each.topic_partition]
        begin(visit_all("log-dir-failure", gone, self._close_failed))
        try:
            self.directories.check_any_live()
        except NoUsableLogDirectory as error:
            log.critical("%s", error)
            self.on_no_log_dir()
        else:
            if self.needs_all_directories:
                log.critical("log directory %s has failed, of which a controller before version 1.0 does not learn", log_dir)
                self.on_no_log_dir()

    def _close_failed(self, gone: PartitionLog) -> None:
        self.flusher.forget(gone)
        gone.leader_epochs.on_change = None
        gone.close_without_writing()

    def describe_log_dirs(self) -> list[LogDirDescription]:
        """The data for DescribeLogDirs."""
        return describe(self.directories, self._current, self.future_logs.logs, self._fs)

    def _on_truncated(self, each: PartitionLog) -> None:
        self._checkpoints.on_truncated(each)
        self.cleaner.on_truncated(each)
        self.moves.on_truncated(each)
        self.on_truncated(each)

    def report_failure(self, failure: LogDirFailure) -> None:
        """Reports a disk failure, which takes the directory offline unless it passes. On the loop."""
        if failure.passes:
            self._shortages.add("%s; this operation alone has failed. Raise the limit of open files (ulimit -n)", failure.what)
        elif self.directories[failure.log_dir].is_live:
            self.on_log_dir_failure(failure.log_dir, failure.what)

    # ---- periodic work

    def checkpoint_high_watermarks(self) -> None:
        """Writes `replication-offset-checkpoint` in every live directory, soon."""
        self._checkpoints.high_watermarks(self._live_paths())

    def checkpoint_recovery_points(self) -> None:
        """Writes `recovery-point-offset-checkpoint` in every live directory, soon."""
        self._checkpoints.recovery_points(self._live_paths())

    def on_log_start_offset(self, log: PartitionLog) -> None:
        """The log start offset moved: writes it soon, if the first segment on the disk says nothing about it."""
        if log.tier is not None:
            self._checkpoints.log_start_offsets([log.log_dir])

    def checkpoint_log_start_offsets(self) -> None:
        """Writes `log-start-offset-checkpoint` in every live directory, soon."""
        self._checkpoints.log_start_offsets(self._live_paths())

    def flush_dirty_logs(self) -> None:
        """Flushes the logs whose `flush.ms` has passed."""
        self.flusher.flush_by_age(self.all_logs(), elapsed_ms(self._clock))

    def remove_expired_producers(self) -> None:
        """Removes producers that were idle for `producer.id.expiration.ms`, a number per turn of the loop."""
        expiration_ms = self.context.producer_id_expiration_ms = self._config[PRODUCER_ID_EXPIRATION_MS]
        self._expirations.check(self.all_logs(), expiration_ms)

    def check_retention(self) -> None:
        """Deletes old segments of all logs except for those handled by the cleaner, a number of logs per turn of the
        loop."""
        self._retention.check(self.all_logs())

    def remove_log(self, gone: PartitionLog, *, is_stray: bool = False, at_once: bool = False) -> DirectoryRename:
        """Renames the directory of a log that was removed from the lists, and deletes it later; a stray log is kept.

        A thread does that, unless `at_once`. Failures are reported as all disk failures.
        """
        log_dir = gone.log_dir
        self.directories[log_dir].log_count -= 1
        gone.leader_epochs.on_change = None
        gone.refuse_appends()  # before the rename: holders of the log must not access its files at the old path
        self.rolls.forget(gone.rolls)
        self.flusher.forget(gone)
        self.cleaner.on_deleted(gone)
        kind = DirectoryKind.STRAY if is_stray else DirectoryKind.DELETE
        name = suffixed_name(gone.topic_partition, kind, f"{self._random.getrandbits(128):032x}")
        rename = DirectoryRename(gone, f"{log_dir}/{name}")

        def then() -> None:
            if is_stray:
                where = gone.directory
                log.warning("%s: the controller does not know this replica; it is not served, %s is kept", gone.topic_partition, where)
                gone.close_without_writing()
            else:
                self._deletions.delete_later(gone, self._config[LOG_SEGMENT_DELETE_DELAY_MS])
            self._checkpoints.recovery_points([log_dir])
            self._checkpoints.log_start_offsets([log_dir])
            self._checkpoints.high_watermarks([log_dir])

        (self.renames.do_now if at_once else self.renames.begin)(rename, then)
        return rename

    def _applies_retention(self, each: PartitionLog) -> bool:
        return each in (self.get(each.topic_partition), self.get(each.topic_partition, future=True)) and not is_compacted(each)

    def _live_paths(self) -> Iterable[str]:
        return [directory.path for directory in self.directories.live]

    def _every(self, name: str, period_ms: int, callback: Callable[[], None]) -> None:
        if period_ms < _NEVER_MS:
            self.background.schedule(name, self._config[LOG_INITIAL_TASK_DELAY_MS], period_ms, callback)
