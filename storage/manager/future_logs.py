"""Logs that are to take the place of another in a second log directory: methods of `LogManager`, kept in a file of their own.

A future log stands in `topic-partition.<32 hex digits>-future` while `LogMoves` copies into it, and becomes the log by being renamed; the
one it replaces is renamed to be deleted. `NewLogs` makes it, in a thread; what becomes of it happens on the event loop.
"""

import logging
from typing import TYPE_CHECKING

from config.keys.log import LOG_SEGMENT_DELETE_DELAY_MS
from storage.disk.directory_names import MAX_NAME_LENGTH, DirectoryKind, suffixed_name
from storage.disk.partition_metadata import ZERO_UUID
from storage.disk.topic_partition import TopicPartition
from storage.errors import LogDirFailure, LogDirNotFound
from storage.log.partition_log import PartitionLog
from storage.manager.log_directories import LogDirectory
from storage.upkeep.retirements import Retirement

if TYPE_CHECKING:
    from storage.manager.log_manager import LogManager

log = logging.getLogger(__name__)

MAX_PREFERRED_LOG_DIRS = 10_000
"""Partitions that do not exist yet and for which a directory is remembered; anybody may ask for any name."""

_UNIQUE_DIGITS = 32


def may_have_future(topic_partition: TopicPartition) -> bool:
    """Whether the name of its future directory is short enough. Unlike others it is not cut, or a start could not tell whose it is."""
    return len(f"{topic_partition}.") + _UNIQUE_DIGITS + len(DirectoryKind.FUTURE.value) <= MAX_NAME_LENGTH


def check_log_dir(self: "LogManager", log_dir: str) -> None:
    """Raises LogDirNotFound when it is none of `log.dirs`, as they are written after being made absolute; LogDirFailure when offline."""
    if log_dir not in self.directories.all:
        raise LogDirNotFound(log_dir)
    self.directories.check_live(log_dir)


def prefer_log_dir(self: "LogManager", topic_partition: TopicPartition, log_dir: str) -> None:
    """The partition's log shall be created in `log_dir`, unless it is there already or on its way."""
    logs = (self.get(topic_partition), self.get(topic_partition, future=True))
    if not any(each is not None and each.log_dir == log_dir for each in logs):
        preferred = self.preferred_log_dirs
        if len(preferred) >= MAX_PREFERRED_LOG_DIRS and topic_partition not in preferred:
            del preferred[next(iter(preferred))]
        preferred[topic_partition] = log_dir


def check_no_future_offline(self: "LogManager", topic_partition: TopicPartition) -> None:
    """Raises LogDirFailure with an offline directory: another future log may stand in there."""
    offline = self.directories.offline
    if offline:
        raise LogDirFailure(offline[0], offline[0], f"a future log of {topic_partition} may stand in this offline directory")


def future_directory(self: "LogManager", topic_partition: TopicPartition, log_dir: str) -> str:
    """Where in `log_dir` a new future log of the partition is to stand."""
    return f"{log_dir}/{suffixed_name(topic_partition, DirectoryKind.FUTURE, f'{self._random.getrandbits(128):032x}')}"


def take_in_future(self: "LogManager", created: PartitionLog, directory: LogDirectory, topic_id: bytes) -> None:
    """`NewLogs` has made a future log, with this topic id in its file."""
    topic_partition, log_dir = created.topic_partition, directory.path
    self._future[topic_partition] = created
    self.preferred_log_dirs.pop(topic_partition, None)
    directory.log_count += 1
    self._checkpoints.watch(created)
    self._checkpoints.on_created(created)
    # The partition may have stood there before: what the file says of its recovery point is not true of this log.
    self._checkpoints.recovery_points([log_dir])
    if topic_id != ZERO_UUID:
        self._checkpoints.on_topic_id_written(created, topic_id)
    log.info("%s: moves from %s to %s", topic_partition, self._current[topic_partition].log_dir, created.directory)


def cut_future_logs(self: "LogManager") -> None:
    """No future log is longer than the log that it is to replace, which a crash may have left shorter. Blocks; called when `load` is done.

    To be done, and on the disk, before anything is appended: what a leader appends next may be of the same leader epoch as what was
    lost, and nothing would tell the two apart.
    """
    cut = False
    for topic_partition, future in list(self._future.items()):
        current = self._current.get(topic_partition)
        if current is None or current.log_end_offset >= future.log_end_offset:
            continue
        cut = True
        try:
            future.truncate_to(current.log_end_offset)
            future.active_segment.sync()
        except LogDirFailure as failure:
            self.report_failure(failure)
        except OSError as error:
            self.report_failure(future.disk_failure(future.directory, error))
    if cut:
        self._checkpoints.run_now()  # the recovery point went back; else what others asked for is not waited for


def delete_future(self: "LogManager", topic_partition: TopicPartition) -> None:
    """The partition does not move any more."""
    self.new_logs.on_deleted(topic_partition, future=True)
    future = self._future.pop(topic_partition, None)
    if future is not None:
        retire(self, future)


def replace_current_with_future(self: "LogManager", topic_partition: TopicPartition) -> PartitionLog:
    """The future log takes the place of the current one, which is renamed and deleted later; returns it.

    Two renames, as in Apache Kafka, and both on the loop: nothing may be appended in between, and whoever finds two logs of a partition
    after a crash cannot tell which one it is. Raises LogDirFailure, with everything as it was.
    """
    source, target = self._current[topic_partition], self._future[topic_partition]
    directory = f"{target.log_dir}/{topic_partition}"
    self.retirements.settle(directory)
    if target.topic_id == ZERO_UUID != source.topic_id:  # a crash came between its directory and that file
        self._checkpoints.take_topic_id(target, source.topic_id)
    target.move_to(directory)
    target.update_high_watermark(source.high_watermark)
    del self._future[topic_partition]
    self._current[topic_partition] = target
    self._checkpoints.on_created(target)
    clean_up_to = self.cleaner.checkpoints.get(source)
    retire(self, source, at_once=True)  # that the directory it leaves may have failed is no reason to stay
    if clean_up_to is not None:
        self.cleaner.checkpoints.update(target, clean_up_to)
    self._checkpoints.recovery_points([target.log_dir])
    self._checkpoints.log_start_offsets([target.log_dir])
    self._checkpoints.high_watermarks([target.log_dir])
    log.info("%s: moved from %s to %s", topic_partition, source.log_dir, target.directory)
    return target


def retire(self: "LogManager", gone: PartitionLog, *, is_stray: bool = False, at_once: bool = False) -> Retirement:
    """Renames the directory of a log that is in nobody's list any more, and deletes it later; a stray one is kept.

    A thread does that, unless it is to be done `at_once`. Who is told of failures is told of its.
    """
    self.directories[gone.log_dir].log_count -= 1
    gone.leader_epochs.on_change = None
    gone.refuse_appends()  # before it is renamed: who still has it in his list must not look for its files where they were
    self.rolls.forget(gone)
    self.flusher.forget(gone)
    self.cleaner.on_deleted(gone)
    kind = DirectoryKind.STRAY if is_stray else DirectoryKind.DELETE
    name = suffixed_name(gone.topic_partition, kind, f"{self._random.getrandbits(128):032x}")
    retirement = Retirement(gone, f"{gone.log_dir}/{name}")

    def then() -> None:
        if is_stray:
            log.warning("%s: the controller does not know this replica; it is not served, %s is kept", gone.topic_partition, gone.directory)
            gone.close_without_writing()
        else:
            self._deletions.delete_later(gone, self._config[LOG_SEGMENT_DELETE_DELAY_MS])
        self._checkpoints.recovery_points([gone.log_dir])
        self._checkpoints.log_start_offsets([gone.log_dir])
        self._checkpoints.high_watermarks([gone.log_dir])

    (self.retirements.do_now if at_once else self.retirements.begin)(retirement, then)
    return retirement
