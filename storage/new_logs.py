"""Logs of new partitions, made in a thread before anybody knows them: to make their directories and files takes a disk from a tenth of a
millisecond to several each, and the controller names hundreds at once.

`LogManager` owns one; all but `_make` is called on the event loop. One batch is made at a time, so nobody else makes what is being made.

Invariants: a directory that was there is left alone, for only `get_or_create` opens one; a log is handed out whole, its topic id in its
file, or not at all. What could not be made is left to `get_or_create`, which says why. Of a batch that a crash cuts short, the next start
finds empty logs.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from config.topic import TopicConfig
from storage.errors import LogDirFailure, StorageError
from storage.future_logs import retire
from storage.giving_way import give_way
from storage.log_directories import LogDirectory
from storage.partition_log import PartitionLog
from storage.partition_metadata import ZERO_UUID, write_topic_id
from storage.recovery import open_log
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from storage.log_manager import LogManager

NEW_LOGS = "new-logs"
"""The name of this work."""

_LOGS_PER_REST = 5


class NewLog(NamedTuple):
    """A log that is wanted. With an offline directory it is made only if it `is_new`, for else it may be in there."""

    topic_partition: TopicPartition
    topic_id: bytes
    is_new: bool


class _Place(NamedTuple):
    """Where one is made."""

    wanted: NewLog
    directory: LogDirectory
    config: TopicConfig


class _Batch:
    """Logs that are made together."""

    __slots__ = ("deleted", "then", "wanted")

    def __init__(self, wanted: Collection[NewLog], then: Callable[[BaseException | None], None]) -> None:
        self.wanted = wanted
        self.then = then
        self.deleted: set[TopicPartition] = set()
        """Partitions that were deleted after these logs were asked for."""


class NewLogs:
    """See the module."""

    __slots__ = ("_batches", "_manager")

    def __init__(self, manager: "LogManager") -> None:
        self._manager = manager
        self._batches: deque[_Batch] = deque()
        """The first is under way."""

    def make(self, wanted: Collection[NewLog], then: Callable[[BaseException | None], None]) -> None:
        """Makes those of the logs that are missing, and calls `then` when they are there, as far as they could be made."""
        self._batches.append(_Batch(wanted, then))
        if len(self._batches) == 1:
            self._begin()

    def on_deleted(self, topic_partition: TopicPartition) -> None:
        """Whoever asked for this log does not want it any more."""
        for batch in self._batches:
            batch.deleted.add(topic_partition)

    def _begin(self) -> None:
        batch = self._batches[0]
        places = [place for each in batch.wanted if (place := self._place(batch, each)) is not None]
        if not places:
            self._end(None)
            return
        made: list[tuple[_Place, PartitionLog]] = []

        def then(error: BaseException | None) -> None:
            for place in places:
                place.directory.log_count -= 1
            for place, log in made:
                self._publish(batch, place, log)
            self._end(error)

        self._manager.background.submit(NEW_LOGS, lambda: self._make(places, made), then)

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
        if topic_partition in batch.deleted or topic_partition in manager.unusable or manager.get(topic_partition) is not None:
            return None
        if not directories.live or (directories.offline and not wanted.is_new):
            return None
        preferred = manager.preferred_log_dirs.get(topic_partition)
        directory = directories.by_fewest_logs()[0] if preferred is None else directories[preferred]
        directory.log_count += 1  # or all would go where there are few now
        return _Place(wanted, directory, manager.topic_config_of(topic_partition.topic))

    def _make(self, places: Collection[_Place], made: list[tuple[_Place, PartitionLog]]) -> None:
        """In a thread. Ends when the disk refuses."""
        context = self._manager.context
        filesystem = context.filesystem
        for place in places:
            (topic_partition, topic_id, _), directory, config = place
            path = f"{directory.path}/{topic_partition}"
            try:
                if filesystem.exists(path):
                    continue
                log = open_log(context, topic_partition, directory.path, config, is_new=True)
                if topic_id != ZERO_UUID:
                    write_topic_id(filesystem, path, topic_id, sync=False)
            except (OSError, StorageError):
                return
            made.append((place, log))
            if len(made) % _LOGS_PER_REST == 0:
                give_way()

    def _publish(self, batch: _Batch, place: _Place, log: PartitionLog) -> None:
        topic_partition, topic_id, _ = place.wanted
        manager = self._manager
        if not place.directory.is_live or manager.get(topic_partition) is not None:
            log.close_without_writing()
            return
        if topic_partition not in batch.deleted:
            manager.take_in(log, place.directory, topic_id)
            return
        place.directory.log_count += 1
        try:
            retire(manager, log)
        except LogDirFailure as failure:
            manager.report_failure(failure)
