"""Handles future logs, which replace another log from a second log directory, for `LogManager`.

A future log is in `topic-partition.<32 hex digits>-future` while `LogMoves` copies into it, and replaces the log by a rename. The replaced
log is renamed and deleted. `NewLogs` creates it, in a thread; everything else happens on the event loop.
"""

import logging
from typing import TYPE_CHECKING

from ottla.config.keys.log import LOG_SEGMENT_DELETE_DELAY_MS
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.directory_names import MAX_NAME_LENGTH, DirectoryKind, suffixed_name
from ottla.storage.disk.partition_metadata import ZERO_UUID
from ottla.storage.errors import LogDirFailure, LogDirNotFound
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_directories import LogDirectory
from ottla.storage.upkeep.directory_renames import DirectoryRename

if TYPE_CHECKING:
    from ottla.storage.manager.log_manager import LogManager

log = logging.getLogger(__name__)

MAX_PREFERRED_LOG_DIRS = 10_000
"""Partitions that do not exist yet and have a preferred directory, at most; any client may name any partition."""

_UNIQUE_DIGITS = 32


def may_have_future(topic_partition: TopicPartition) -> bool:
    """Whether the name of its future directory is short enough. That name is not shortened, so that a start can
    identify the partition."""
    return len(f"{topic_partition}.") + _UNIQUE_DIGITS + len(DirectoryKind.FUTURE.value) <= MAX_NAME_LENGTH


def check_log_dir(manager: "LogManager", log_dir: str) -> None:
    """See `LogManager.check_log_dir`."""
    if log_dir not in manager.directories.all:
        raise LogDirNotFound(log_dir)
    manager.directories.check_live(log_dir)


def prefer_log_dir(manager: "LogManager", topic_partition: TopicPartition, log_dir: str) -> None:
    """See `LogManager.prefer_log_dir`."""
    logs = (manager.get(topic_partition), manager.get(topic_partition, future=True))
    if not any(each is not None and each.log_dir == log_dir for each in logs):
        preferred = manager.preferred_log_dirs
        if len(preferred) >= MAX_PREFERRED_LOG_DIRS and topic_partition not in preferred:
            del preferred[next(iter(preferred))]
        preferred[topic_partition] = log_dir


def check_no_future_offline(manager: "LogManager", topic_partition: TopicPartition) -> None:
    """See `LogManager.check_no_future_offline`."""
    offline = manager.directories.offline
    if offline:
        raise LogDirFailure(offline[0], offline[0], f"a future log of {topic_partition} may be in this offline directory")


def future_directory(manager: "LogManager", topic_partition: TopicPartition, log_dir: str) -> str:
    """See `LogManager.future_directory`."""
    return f"{log_dir}/{suffixed_name(topic_partition, DirectoryKind.FUTURE, f'{manager._random.getrandbits(128):032x}')}"


def take_in_future(manager: "LogManager", created: PartitionLog, directory: LogDirectory, topic_id: bytes) -> None:
    """See `LogManager.take_in_future`."""
    topic_partition, log_dir = created.topic_partition, directory.path
    manager._future[topic_partition] = created
    manager.preferred_log_dirs.pop(topic_partition, None)
    directory.log_count += 1
    manager._checkpoints.watch(created)
    manager._checkpoints.on_created(created)
    # The partition may have been there before: the recovery point in the file does not apply to this log.
    manager._checkpoints.recovery_points([log_dir])
    if topic_id != ZERO_UUID:
        manager._checkpoints.on_topic_id_written(created, topic_id)
    log.info("%s: moving from %s to %s", topic_partition, manager._current[topic_partition].log_dir, created.directory)


def cut_future_logs(manager: "LogManager") -> None:
    """See `LogManager.cut_future_logs`."""
    cut = False
    for topic_partition, future in list(manager._future.items()):
        current = manager._current.get(topic_partition)
        if current is None or current.log_end_offset >= future.log_end_offset:
            continue
        cut = True
        try:
            future.truncations.truncate_to(current.log_end_offset)
            future.segments.active.sync()
        except LogDirFailure as failure:
            manager.report_failure(failure)
        except OSError as error:
            manager.report_failure(future.files.failure(error))
        except Exception:  # damage in its files: the broker starts without the move
            log.exception("%s: %s cannot be truncated to offset %d", topic_partition, future.directory, current.log_end_offset)
    if cut:
        manager._checkpoints.run_now()  # the recovery point decreased; otherwise requests of other components need not be waited for


def delete_future(manager: "LogManager", topic_partition: TopicPartition) -> None:
    """See `LogManager.delete_future`."""
    manager.new_logs.on_deleted(topic_partition, future=True)
    future = manager._future.pop(topic_partition, None)
    if future is not None:
        remove_log(manager, future)


def replace_current_with_future(manager: "LogManager", topic_partition: TopicPartition) -> PartitionLog:
    """See `LogManager.replace_current_with_future`."""
    source, target = manager._current[topic_partition], manager._future[topic_partition]
    directory = f"{target.log_dir}/{topic_partition}"
    manager.renames.finish(directory)
    if target.topic_id == ZERO_UUID != source.topic_id:  # a crash came between the creation of its directory and that file
        manager._checkpoints.take_topic_id(target, source.topic_id)
    target.move_to(directory)
    target.update_high_watermark(source.high_watermark)
    # A batch that a transaction coordinator is being asked about comes with the guard from the former log.
    target.producer_state.state.verifications = source.producer_state.state.verifications
    del manager._future[topic_partition]
    manager._current[topic_partition] = target
    manager._checkpoints.on_created(target)
    clean_up_to = manager.cleaner.checkpoints.get(source)
    remove_log(manager, source, at_once=True)  # even if the directory that it leaves has failed
    if clean_up_to is not None:
        manager.cleaner.checkpoints.update(target, clean_up_to)
    manager._checkpoints.recovery_points([target.log_dir])
    manager._checkpoints.log_start_offsets([target.log_dir])
    manager._checkpoints.high_watermarks([target.log_dir])
    log.info("%s: moved from %s to %s", topic_partition, source.log_dir, target.directory)
    return target


def remove_log(manager: "LogManager", gone: PartitionLog, *, is_stray: bool = False, at_once: bool = False) -> DirectoryRename:
    """Renames the directory of a log that was removed from the lists, and deletes it later; a stray log is kept.

    A thread does that, unless `at_once`. Failures are reported as all disk failures.
    """
    manager.directories[gone.log_dir].log_count -= 1
    gone.leader_epochs.on_change = None
    gone.refuse_appends()  # before the rename: holders of the log must not access its files at the old path
    manager.rolls.forget(gone.rolls)
    manager.flusher.forget(gone)
    manager.cleaner.on_deleted(gone)
    kind = DirectoryKind.STRAY if is_stray else DirectoryKind.DELETE
    name = suffixed_name(gone.topic_partition, kind, f"{manager._random.getrandbits(128):032x}")
    rename = DirectoryRename(gone, f"{gone.log_dir}/{name}")

    def then() -> None:
        if is_stray:
            log.warning("%s: the controller does not know this replica; it is not served, %s is kept", gone.topic_partition, gone.directory)
            gone.close_without_writing()
        else:
            manager._deletions.delete_later(gone, manager._config[LOG_SEGMENT_DELETE_DELAY_MS])
        manager._checkpoints.recovery_points([gone.log_dir])
        manager._checkpoints.log_start_offsets([gone.log_dir])
        manager._checkpoints.high_watermarks([gone.log_dir])

    (manager.renames.do_now if at_once else manager.renames.begin)(rename, then)
    return rename
