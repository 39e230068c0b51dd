"""Creates the logs of new partitions, and future logs, in a thread before they are used.

Creating the directories and files of a log takes a disk between a tenth of a millisecond and several, and the
controller, or an administrator, requests hundreds at once. Owned by `LogManager`; all methods except `_make` are called
on the event loop. One batch is created at a time, so that no log is created twice.

Invariants: an existing directory is left unchanged, because only `get_or_create` opens one; a log is handed over
complete, with its topic id in its file, or not at all. A new partition whose log could not be created is left to
`get_or_create`, which reports the error; the directory of a future log that could not be created is taken offline. If a
crash interrupts a batch, the next start finds empty logs.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.topic import TopicConfig
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.partition_metadata import ZERO_UUID, write_topic_id
from ottla.storage.disk.yielding import yield_to_loop
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from ottla.storage.manager.log_directories import LogDirectory
from ottla.storage.remote.tier import BROKERS_TOPICS

if TYPE_CHECKING:
    from ottla.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

NEW_LOGS = "new-logs"
"""The name of this background work."""

_LOGS_PER_REST = 5


class NewLog(NamedTuple):
    """A log to create. When a directory is offline it is created only if it `is_new`, because otherwise it may be in
    there.

    `future_in` is the directory for a future log that is to replace the existing one.
    """

    topic_partition: TopicPartition
    topic_id: bytes
    is_new: bool
    future_in: str | None = None


class _Place(NamedTuple):
    """The place of a log to create."""

    wanted: NewLog
    directory: LogDirectory
    path: str
    config: TopicConfig


class _Batch:
    """Logs that are created together."""

    __slots__ = ("deleted", "then", "wanted")

    def __init__(self, wanted: Collection[NewLog], then: Callable[[BaseException | None], None]) -> None:
        self.wanted = wanted
        self.then = then
        self.deleted: set[tuple[TopicPartition, bool]] = set()
        """Logs, future ones or others, that were deleted after they were requested."""

    def is_deleted(self, wanted: NewLog) -> bool:
        return (wanted.topic_partition, wanted.future_in is not None) in self.deleted


class NewLogs:
    """See the module."""

    __slots__ = ("_batches", "_is_over", "_lock", "_made", "_manager")

    def __init__(self, manager: "LogManager") -> None:
        self._manager = manager
        self._batches: deque[_Batch] = deque()
        """Batches in order; the first is in progress."""
        self._made: list[tuple[_Place, PartitionLog]] = []
        """The logs of it that a thread has created."""
        self._lock = threading.Lock()
        """Held while a log is created."""
        self._is_over = False

    def make(self, wanted: Collection[NewLog], then: Callable[[BaseException | None], None]) -> None:
        """Creates the missing logs, and calls `then` when they exist, as far as they could be created."""
        self._batches.append(_Batch(wanted, then))
        if len(self._batches) == 1:
            self._begin()

    def on_deleted(self, topic_partition: TopicPartition, *, future: bool) -> None:
        """The log is no longer requested."""
        for batch in self._batches:
            batch.deleted.add((topic_partition, future))

    def finish(self) -> None:
        """Stops creating logs, and hands over those created so far. For use after the loop has stopped; waits for a log
        in progress."""
        with self._lock:
            self._is_over = True
        if self._batches:
            for place, log in self._made:
                self._publish(self._batches[0], place, log)

    def _begin(self) -> None:
        batch = self._batches[0]
        places: list[_Place] = []
        for each in batch.wanted:
            try:
                place = self._place(batch, each)
            except Exception:  # a fault of this broker: all later batches wait for this one
                logger.exception("%s: its log cannot be created now", each.topic_partition)
            else:
                if place is not None:
                    places.append(place)
        if not places:
            self._end(None)
            return
        made: list[tuple[_Place, PartitionLog]] = []
        self._made = made
        refused: dict[str, LogDirFailure] = {}

        def then(error: BaseException | None) -> None:
            for place in places:
                place.directory.log_count -= 1
            for place, log in made:
                try:
                    self._publish(batch, place, log)
                except Exception:  # as above
                    logger.exception("%s: its new log cannot be served now", log.topic_partition)
            for place in places:
                if place.wanted.future_in in refused:
                    self._manager.report_failure(refused[place.wanted.future_in])
            self._end(error)

        self._manager.background.submit(NEW_LOGS, lambda: self._make(places, made, refused), then)

    def _end(self, error: BaseException | None) -> None:
        batch = self._batches.popleft()
        if self._batches:
            self._begin()
        batch.then(error)

    def _place(self, batch: _Batch, wanted: NewLog) -> _Place | None:
        """None for existing logs, and for those that `get_or_create` has to decide about."""
        manager = self._manager
        directories = manager.directories
        topic_partition = wanted.topic_partition
        if batch.is_deleted(wanted):
            return None
        if wanted.future_in is not None:
            return self._future_place(wanted, wanted.future_in)
        if manager.get(topic_partition) is not None:
            return None
        if not directories.live or (directories.offline and not wanted.is_new):
            return None
        preferred = directories.preferred.get(topic_partition)
        directory = directories.by_fewest_logs()[0] if preferred is None else directories[preferred]
        directory.log_count += 1  # otherwise all would go to the directory with the fewest logs
        return _Place(wanted, directory, f"{directory.path}/{topic_partition}", manager.topic_config_of(topic_partition.topic))

    def _future_place(self, wanted: NewLog, log_dir: str) -> _Place | None:
        """None when a directory is offline, because another future log may be in it."""
        manager = self._manager
        topic_partition = wanted.topic_partition
        current = manager.get(topic_partition)
        if current is None or current.log_dir == log_dir or manager.get(topic_partition, future=True) is not None:
            return None
        if manager.directories.offline:
            return None
        directory = manager.directories[log_dir]
        directory.log_count += 1
        return _Place(wanted, directory, manager.future_logs.directory(topic_partition, log_dir), current.config)

    def _make(self, places: Collection[_Place], made: list[tuple[_Place, PartitionLog]], refused: dict[str, LogDirFailure]) -> None:
        """Creates the logs, in a thread. Logs of a directory whose disk fails are skipped."""
        for place in places:
            log_dir = place.directory.path
            if log_dir in refused:
                continue
            self._manager.renames.finish(place.path)
            with self._lock:
                if self._is_over:
                    return
                try:
                    log = self._make_one(place)
                except LogDirFailure as failure:
                    refused[log_dir] = failure
                    continue
                except OSError as error:
                    refused[log_dir] = LogDirFailure.of(error, log_dir, place.path)
                    continue
                if log is None:
                    continue
                made.append((place, log))
            if len(made) % _LOGS_PER_REST == 0:
                yield_to_loop()

    def _make_one(self, place: _Place) -> PartitionLog | None:
        """None if the directory exists already. May raise LogDirFailure, OSError."""
        context = self._manager.context
        (topic_partition, topic_id, _, _), directory, path, config = place
        if context.filesystem.exists(path):
            return None
        log = open_log(context, topic_partition, directory.path, config, directory=path, is_new=True)
        if topic_id != ZERO_UUID:
            is_durable = topic_partition.topic in BROKERS_TOPICS
            write_topic_id(context.filesystem, path, topic_id, sync=is_durable)
            if is_durable:
                log.topic_id = topic_id
        log.segments.active.release()  # there may be more new logs than the process may open files
        return log

    def _publish(self, batch: _Batch, place: _Place, log: PartitionLog) -> None:
        wanted, directory, _, _ = place
        topic_partition = wanted.topic_partition
        manager = self._manager
        is_future = wanted.future_in is not None
        is_wanted = not batch.is_deleted(wanted)
        is_there = manager.get(topic_partition, future=is_future) is not None
        config = manager.topic_config_of(topic_partition.topic)
        if log.config is not config:
            log.update_config(config)  # it changed while the log was created, and only existing logs were notified
        if is_future:
            current = manager.get(topic_partition)
            is_wanted = is_wanted and not is_there and current is not None and current.log_dir != directory.path
        if not directory.is_live or (is_there and not is_future):
            log.close_without_writing()
        elif not is_wanted:
            directory.log_count += 1  # `remove_log` decrements it again
            manager.remove_log(log)
        elif is_future:
            manager.future_logs.take_in(log, directory, wanted.topic_id)
        else:
            manager.take_in(log, directory, wanted.topic_id)
