"""Handles future logs, which replace another log from a second log directory: methods of `LogManager` in a file of
their own.

A future log is in `topic-partition.<32 hex digits>-future` while `LogMoves` copies into it, and replaces the log by a
rename; the replaced log is renamed and deleted. `NewLogs` creates it, in a thread; everything else happens on the event
loop.
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
from storage.upkeep.directory_renames import DirectoryRename

if TYPE_CHECKING:
    from storage.manager.log_manager import LogManager

log = logging.getLogger(__name__)

MAX_PREFERRED_LOG_DIRS = 10_000
"""Partitions that do not exist yet and have a preferred directory, at most; any client may name any partition."""

_UNIQUE_DIGITS = 32


def may_have_future(topic_partition: TopicPartition) -> bool:
    """Whether the name of its future directory is short enough. That name is not shortened, so that a start can
    identify the partition."""
    return len(f"{topic_partition}.") + _UNIQUE_DIGITS + len(DirectoryKind.FUTURE.value) <= MAX_NAME_LENGTH


def check_log_dir(self: "LogManager", log_dir: str) -> None:
    """Raises LogDirNotFound unless it is one of the absolute paths of `log.dirs`; LogDirFailure when it is offline."""
    if log_dir not in self.directories.all:
        raise LogDirNotFound(log_dir)
    self.directories.check_live(log_dir)


def prefer_log_dir(self: "LogManager", topic_partition: TopicPartition, log_dir: str) -> None:
    """Has the partition's log created in `log_dir`, unless it is there already or moving there."""
    logs = (self.get(topic_partition), self.get(topic_partition, future=True))
    if not any(each is not None and each.log_dir == log_dir for each in logs):
        preferred = self.preferred_log_dirs
        if len(preferred) >= MAX_PREFERRED_LOG_DIRS and topic_partition not in preferred:
            del preferred[next(iter(preferred))]
        preferred[topic_partition] = log_dir


def check_no_future_offline(self: "LogManager", topic_partition: TopicPartition) -> None:
    """Raises LogDirFailure when a directory is offline, because another future log may be in it."""
    offline = self.directories.offline
    if offline:
        raise LogDirFailure(offline[0], offline[0], f"a future log of {topic_partition} may be in this offline directory")


def future_directory(self: "LogManager", topic_partition: TopicPartition, log_dir: str) -> str:
    """The path of a new future log of the partition in `log_dir`."""
    return f"{log_dir}/{suffixed_name(topic_partition, DirectoryKind.FUTURE, f'{self._random.getrandbits(128):032x}')}"


def take_in_future(self: "LogManager", created: PartitionLog, directory: LogDirectory, topic_id: bytes) -> None:
    """Adds a future log that `NewLogs` has created, with this topic id in its file."""
    topic_partition, log_dir = created.topic_partition, directory.path
    self._future[topic_partition] = created
    self.preferred_log_dirs.pop(topic_partition, None)
    directory.log_count += 1
    self._checkpoints.watch(created)
    self._checkpoints.on_created(created)
    # The partition may have been there before: the recovery point in the file does not apply to this log.
    self._checkpoints.recovery_points([log_dir])
    if topic_id != ZERO_UUID:
        self._checkpoints.on_topic_id_written(created, topic_id)
    log.info("%s: moving from %s to %s", topic_partition, self._current[topic_partition].log_dir, created.directory)


def cut_future_logs(self: "LogManager") -> None:
    """Cuts future logs that are longer than their current log, which a crash may have shortened. Blocks; called after
    `load`.

    The cut must be durable before any append: a leader's next append may have the leader epoch of lost records, and the
    two could not be distinguished.
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
        self._checkpoints.run_now()  # the recovery point decreased; otherwise requests of other components need not be waited for


def delete_future(self: "LogManager", topic_partition: TopicPartition) -> None:
    """The partition no longer moves."""
    self.new_logs.on_deleted(topic_partition, future=True)
    future = self._future.pop(topic_partition, None)
    if future is not None:
        remove_log(self, future)


def replace_current_with_future(self: "LogManager", topic_partition: TopicPartition) -> PartitionLog:
    """Replaces the current log by the future log, which is returned; the current log is renamed and deleted later.

    Two renames, as in Apache Kafka, both on the loop: no append may come in between, and after a crash two logs of a
    partition cannot be distinguished. Raises LogDirFailure, with everything unchanged.
    """
    source, target = self._current[topic_partition], self._future[topic_partition]
    directory = f"{target.log_dir}/{topic_partition}"
    self.renames.finish(directory)
    if target.topic_id == ZERO_UUID != source.topic_id:  # a crash came between the creation of its directory and that file
        self._checkpoints.take_topic_id(target, source.topic_id)
    target.move_to(directory)
    target.update_high_watermark(source.high_watermark)
    del self._future[topic_partition]
    self._current[topic_partition] = target
    self._checkpoints.on_created(target)
    clean_up_to = self.cleaner.checkpoints.get(source)
    remove_log(self, source, at_once=True)  # even if the directory that it leaves has failed
    if clean_up_to is not None:
        self.cleaner.checkpoints.update(target, clean_up_to)
    self._checkpoints.recovery_points([target.log_dir])
    self._checkpoints.log_start_offsets([target.log_dir])
    self._checkpoints.high_watermarks([target.log_dir])
    log.info("%s: moved from %s to %s", topic_partition, source.log_dir, target.directory)
    return target


def remove_log(self: "LogManager", gone: PartitionLog, *, is_stray: bool = False, at_once: bool = False) -> DirectoryRename:
    """Renames the directory of a log that was removed from the lists, and deletes it later; a stray log is kept.

    A thread does that, unless `at_once`. Failures are reported as all disk failures.
    """
    self.directories[gone.log_dir].log_count -= 1
    gone.leader_epochs.on_change = None
    gone.refuse_appends()  # before the rename: holders of the log must not access its files at the old path
    self.rolls.forget(gone)
    self.flusher.forget(gone)
    self.cleaner.on_deleted(gone)
    kind = DirectoryKind.STRAY if is_stray else DirectoryKind.DELETE
    name = suffixed_name(gone.topic_partition, kind, f"{self._random.getrandbits(128):032x}")
    rename = DirectoryRename(gone, f"{gone.log_dir}/{name}")

    def then() -> None:
        if is_stray:
            log.warning("%s: the controller does not know this replica; it is not served, %s is kept", gone.topic_partition, gone.directory)
            gone.close_without_writing()
        else:
            self._deletions.delete_later(gone, self._config[LOG_SEGMENT_DELETE_DELAY_MS])
        self._checkpoints.recovery_points([gone.log_dir])
        self._checkpoints.log_start_offsets([gone.log_dir])
        self._checkpoints.high_watermarks([gone.log_dir])

    (self.renames.do_now if at_once else self.renames.begin)(rename, then)
    return rename
