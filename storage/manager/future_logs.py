"""Handles future logs, which replace another log from a second log directory, for `LogManager`.

A future log is in `topic-partition.<32 hex digits>-future` while `LogMoves` copies into it, and replaces the log by a rename. The replaced
log is renamed and deleted. `NewLogs` creates it, in a thread; everything else happens on the event loop.
"""

import logging
from collections.abc import Callable
from random import Random

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner.checkpoints import CleanerCheckpoints
from ottla.storage.disk.directory_names import MAX_NAME_LENGTH, DirectoryKind, suffixed_name
from ottla.storage.disk.partition_metadata import ZERO_UUID
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import take_topic_id
from ottla.storage.manager.log_directories import LogDirectories, LogDirectory
from ottla.storage.upkeep.directory_renames import DirectoryRenames
from ottla.storage.upkeep.log_checkpoints import LogCheckpoints

log = logging.getLogger(__name__)

_UNIQUE_DIGITS = 32


def may_have_future(topic_partition: TopicPartition) -> bool:
    """Whether the name of its future directory is short enough. That name is not shortened, so that a start can
    identify the partition."""
    return len(f"{topic_partition}.") + _UNIQUE_DIGITS + len(DirectoryKind.FUTURE.value) <= MAX_NAME_LENGTH


class FutureLogs:
    """The future logs of a broker."""

    def __init__(
        self,
        current: dict[TopicPartition, PartitionLog],
        directories: LogDirectories,
        checkpoints: LogCheckpoints,
        clean_offsets: CleanerCheckpoints,
        renames: DirectoryRenames,
        random: Random,
        on_failure: Callable[[LogDirFailure], None],
        remove: Callable[[PartitionLog, bool], object],
        on_deleted: Callable[[TopicPartition], None],
    ) -> None:
        """`current` are the logs that may be replaced. `remove` renames and deletes a log; a thread does that, unless it is to happen at
        once. `on_deleted` is called when a partition no longer moves."""
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._current = current
        self._directories = directories
        self._checkpoints = checkpoints
        self._clean_offsets = clean_offsets
        self._renames = renames
        self._random = random
        self._on_failure = on_failure
        self._remove = remove
        self._on_deleted = on_deleted

    def directory(self, topic_partition: TopicPartition, log_dir: str) -> str:
        """The path of a new future log of the partition in `log_dir`."""
        return f"{log_dir}/{suffixed_name(topic_partition, DirectoryKind.FUTURE, f'{self._random.getrandbits(128):032x}')}"

    def prefer(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Has the partition's log created in `log_dir`, unless it is there already or moving there."""
        logs = (self._current.get(topic_partition), self.logs.get(topic_partition))
        if not any(each is not None and each.log_dir == log_dir for each in logs):
            self._directories.prefer(topic_partition, log_dir)

    def check_none_offline(self, topic_partition: TopicPartition) -> None:
        """Raises LogDirFailure when a directory is offline, because another future log may be in it."""
        offline = self._directories.offline
        if offline:
            raise LogDirFailure(offline[0], offline[0], f"a future log of {topic_partition} may be in this offline directory")

    def take_in(self, created: PartitionLog, directory: LogDirectory, topic_id: bytes) -> None:
        """Adds a future log that `NewLogs` has created, with this topic id in its file."""
        topic_partition, log_dir = created.topic_partition, directory.path
        self.logs[topic_partition] = created
        self._directories.preferred.pop(topic_partition, None)
        directory.log_count += 1
        self._checkpoints.watch(created)
        self._checkpoints.on_created(created)
        # The partition may have been there before: the recovery point in the file does not apply to this log.
        self._checkpoints.recovery_points([log_dir])
        if topic_id not in (ZERO_UUID, created.topic_id):
            take_topic_id(created, topic_id)
        log.info("%s: moving from %s to %s", topic_partition, self._current[topic_partition].log_dir, created.directory)

    def cut(self) -> None:
        """Cuts future logs that are longer than their current log, which a crash may have shortened. Blocks; called after
        `LogManager.load`.

        The cut must be durable before any append: a leader's next append may have the leader epoch of lost records, and the
        two could not be distinguished.
        """
        cut = False
        for topic_partition, future in list(self.logs.items()):
            current = self._current.get(topic_partition)
            if current is None or current.log_end_offset >= future.log_end_offset:
                continue
            cut = True
            try:
                future.truncations.truncate_to(current.log_end_offset)
                future.segments.active.sync()
            except LogDirFailure as failure:
                self._on_failure(failure)
            except OSError as error:
                self._on_failure(future.files.failure(error))
            except Exception:  # damage in its files: the broker starts without the move
                log.exception("%s: %s cannot be truncated to offset %d", topic_partition, future.directory, current.log_end_offset)
        if cut:
            self._checkpoints.run_now()  # the recovery point decreased; otherwise requests of other components need not be waited for

    def check_topic(self, topic_partition: TopicPartition) -> bool:
        """Whether the future log belongs to the topic of the current one. It gets the topic's id if a crash came before that was in its
        file. A copy for a former topic of the name, whose directory was offline when that was deleted, is deleted."""
        current, future = self._current[topic_partition], self.logs[topic_partition]
        if future.topic_id == ZERO_UUID != current.topic_id:
            take_topic_id(future, current.topic_id)
        if current.topic_id in (ZERO_UUID, future.topic_id):
            return True
        log.warning("%s: %s belongs to another topic of that name, and is deleted", topic_partition, future.directory)
        self.delete(topic_partition)
        return False

    def delete(self, topic_partition: TopicPartition) -> None:
        """The partition no longer moves."""
        self._on_deleted(topic_partition)
        future = self.logs.pop(topic_partition, None)
        if future is not None:
            self._remove(future, False)

    def replace_current(self, topic_partition: TopicPartition) -> PartitionLog:
        """Replaces the current log by the future log, which is returned; the current log is renamed and deleted later.

        Two renames, as in Apache Kafka, both on the loop: no append may come in between, and after a crash two logs of a
        partition cannot be distinguished. Raises LogDirFailure, with everything unchanged.
        """
        source, target = self._current[topic_partition], self.logs[topic_partition]
        directory = f"{target.log_dir}/{topic_partition}"
        self._renames.finish(directory)
        target.move_to(directory)
        target.update_high_watermark(source.high_watermark)
        target.tier = source.tier
        # A batch that a transaction coordinator is being asked about comes with the guard from the former log.
        target.producer_state.state.verifications = source.producer_state.state.verifications
        del self.logs[topic_partition]
        self._current[topic_partition] = target
        self._checkpoints.on_created(target)
        clean_up_to = self._clean_offsets.get(source)
        self._remove(source, True)  # even if the directory that it leaves has failed
        if clean_up_to is not None:
            self._clean_offsets.update(target, clean_up_to)
        self._checkpoints.recovery_points([target.log_dir])
        self._checkpoints.log_start_offsets([target.log_dir])
        self._checkpoints.high_watermarks([target.log_dir])
        log.info("%s: moved from %s to %s", topic_partition, source.log_dir, target.directory)
        return target
