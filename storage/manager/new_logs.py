"""Logs of new partitions, and those that are to take the place of another, made in a thread before anybody knows them: to make their
directories and files takes a disk from a tenth of a millisecond to several each, and the controller, or an administrator, names hundreds at
once.

`LogManager` owns one; all but `_make` is called on the event loop. One batch is made at a time, so nobody else makes what is being made.

Invariants: a directory that was there is left alone, for only `get_or_create` opens one; a log is handed out whole, its topic id in its
file, or not at all. What could not be made of a new partition is left to `get_or_create`, which says why; the directory of a future log
that could not be made is offline. Of a batch that a crash cuts short, the next start finds empty logs.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from config.topic import TopicConfig
from storage.disk.giving_way import give_way
from storage.disk.partition_metadata import ZERO_UUID, write_topic_id
from storage.disk.topic_partition import TopicPartition
from storage.errors import LogDirFailure
from storage.log.partition_log import PartitionLog
from storage.log.recovery import open_log
from storage.manager.future_logs import retire
from storage.manager.log_directories import LogDirectory

if TYPE_CHECKING:
    from storage.manager.log_manager import LogManager

NEW_LOGS = "new-logs"
"""The name of this work."""

_LOGS_PER_REST = 5


class NewLog(NamedTuple):
    """A log that is wanted. With an offline directory it is made only if it `is_new`, for else it may be in there.

    `future_in` asks for one that is to take the place of the log that is there, in this directory.
    """

    topic_partition: TopicPartition
    topic_id: bytes
    is_new: bool
    future_in: str | None = None


class _Place(NamedTuple):
    """Where one is made."""

    wanted: NewLog
    directory: LogDirectory
    path: str
    config: TopicConfig


class _Batch:
    """Logs that are made together."""

    __slots__ = ("deleted", "then", "wanted")

    def __init__(self, wanted: Collection[NewLog], then: Callable[[BaseException | None], None]) -> None:
        self.wanted = wanted
        self.then = then
        self.deleted: set[tuple[TopicPartition, bool]] = set()
        """Logs, future ones or others, that were deleted after these were asked for."""

    def is_deleted(self, wanted: NewLog) -> bool:
        return (wanted.topic_partition, wanted.future_in is not None) in self.deleted


class NewLogs:
    """See the module."""

    __slots__ = ("_batches", "_is_over", "_lock", "_made", "_manager")

    def __init__(self, manager: "LogManager") -> None:
        self._manager = manager
        self._batches: deque[_Batch] = deque()
        """The first is under way."""
        self._made: list[tuple[_Place, PartitionLog]] = []
        """What a thread has made of it."""
        self._lock = threading.Lock()
        """Held while one log is made."""
        self._is_over = False

    def make(self, wanted: Collection[NewLog], then: Callable[[BaseException | None], None]) -> None:
        """Makes those of the logs that are missing, and calls `then` when they are there, as far as they could be made."""
        self._batches.append(_Batch(wanted, then))
        if len(self._batches) == 1:
            self._begin()

    def on_deleted(self, topic_partition: TopicPartition, *, future: bool) -> None:
        """Whoever asked for this log does not want it any more."""
        for batch in self._batches:
            batch.deleted.add((topic_partition, future))

    def settle(self) -> None:
        """Makes no more, and hands out what was made. For the time when the loop runs no more; waits for a log that was begun."""
        with self._lock:
            self._is_over = True
        if self._batches:
            for place, log in self._made:
                self._publish(self._batches[0], place, log)

    def _begin(self) -> None:
        batch = self._batches[0]
        places = [place for each in batch.wanted if (place := self._place(batch, each)) is not None]
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
                self._publish(batch, place, log)
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
        """None for what is there, and for what `get_or_create` has to decide about."""
        manager = self._manager
        directories = manager.directories
        topic_partition = wanted.topic_partition
        if batch.is_deleted(wanted):
            return None
        if wanted.future_in is not None:
            return self._future_place(wanted, wanted.future_in)
        if topic_partition in manager.unusable or manager.get(topic_partition) is not None:
            return None
        if not directories.live or (directories.offline and not wanted.is_new):
            return None
        preferred = manager.preferred_log_dirs.get(topic_partition)
        directory = directories.by_fewest_logs()[0] if preferred is None else directories[preferred]
        directory.log_count += 1  # or all would go where there are few now
        return _Place(wanted, directory, f"{directory.path}/{topic_partition}", manager.topic_config_of(topic_partition.topic))

    def _future_place(self, wanted: NewLog, log_dir: str) -> _Place | None:
        """None with an offline directory, for another future log may stand in there."""
        manager = self._manager
        topic_partition = wanted.topic_partition
        current = manager.get(topic_partition)
        if current is None or current.log_dir == log_dir or manager.get(topic_partition, future=True) is not None:
            return None
        if manager.directories.offline:
            return None
        directory = manager.directories[log_dir]
        directory.log_count += 1
        return _Place(wanted, directory, manager.future_directory(topic_partition, log_dir), current.config)

    def _make(self, places: Collection[_Place], made: list[tuple[_Place, PartitionLog]], refused: dict[str, LogDirFailure]) -> None:
        """In a thread. What is in a directory whose disk refuses is left out."""
        for place in places:
            log_dir = place.directory.path
            if log_dir in refused:
                continue
            self._manager.retirements.settle(place.path)
            with self._lock:
                if self._is_over:
                    return
                try:
                    log = self._make_one(place)
                except LogDirFailure as failure:
                    refused[log_dir] = failure
                    continue
                except OSError as error:
                    refused[log_dir] = LogDirFailure(log_dir, str(error.filename or place.path), error.strerror or str(error))
                    continue
                if log is None:
                    continue
                made.append((place, log))
            if len(made) % _LOGS_PER_REST == 0:
                give_way()

    def _make_one(self, place: _Place) -> PartitionLog | None:
        """None if something is there already. May raise LogDirFailure, OSError."""
        context = self._manager.context
        (topic_partition, topic_id, _, _), directory, path, config = place
        if context.filesystem.exists(path):
            return None
        log = open_log(context, topic_partition, directory.path, config, directory=path, is_new=True)
        if topic_id != ZERO_UUID:
            write_topic_id(context.filesystem, path, topic_id, sync=False)
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
            log.update_config(config)  # it was changed while the log was made, and only logs that are there were told
        if is_future:
            current = manager.get(topic_partition)
            is_wanted = is_wanted and not is_there and current is not None and current.log_dir != directory.path
        if not directory.is_live or (is_there and not is_future):
            log.close_without_writing()
        elif not is_wanted:
            directory.log_count += 1  # which it counts back
            retire(self._manager, log)
        elif is_future:
            manager.take_in_future(log, directory, wanted.topic_id)
        else:
            manager.take_in(log, directory, wanted.topic_id)
