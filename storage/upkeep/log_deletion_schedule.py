"""Deletes the directories of deleted partitions, some time after they were renamed, in threads.

Owned by `LogManager`. The delay lets reads in progress end; the directory's name ends with `-delete`, so that the next
start finds the remaining ones.
"""

import logging
import os
from collections.abc import Callable

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.background import Background
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.upkeep.partition_events import PartitionEvents

log = logging.getLogger(__name__)


class LogDeletions:
    """All deletions of a broker."""

    __slots__ = ("_background", "_events", "_fs", "_on_failure")

    def __init__(
        self, filesystem: FileSystem, background: Background, events: PartitionEvents, on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        """`on_failure` is called on the loop when the disk fails."""
        self._fs = filesystem
        self._background = background
        self._events = events
        self._on_failure = on_failure

    def delete_later(self, gone: PartitionLog, delay_ms: int) -> None:
        """Deletes a renamed log after the delay."""
        event = f"renamed in {gone.log_dir} to a name with {DirectoryKind.DELETE.value}, deleted in {delay_ms} ms"
        self._events.add(event, gone.topic_partition)

        def begin() -> None:
            gone.close_without_writing()  # on the loop, where others may access it
            self._submit(gone.files.delete, f"deleted from {gone.log_dir}", gone.topic_partition)

        self._background.schedule("delete-log", delay_ms, 0, begin)

    def remove_later(self, log_dir: str, path: str, delay_ms: int) -> None:
        """Removes a directory that an earlier run left."""
        parsed = parse_directory_name(os.path.basename(path))
        assert parsed is not None, path
        self._events.add(f"left in {log_dir} by a deletion, removed in {delay_ms} ms", parsed[0])

        def remove() -> None:
            try:
                for name in self._fs.list_directory(path):
                    self._fs.unlink(f"{path}/{name}")
                self._fs.remove_directory(path)
            except FileNotFoundError:
                return
            except OSError as error:
                raise LogDirFailure.of(error, log_dir, path) from error

        self._background.schedule("delete-log", delay_ms, 0, lambda: self._submit(remove, f"removed from {log_dir}", parsed[0]))

    def _submit(self, work: Callable[[], None], event: str, topic_partition: TopicPartition) -> None:
        def then(error: BaseException | None) -> None:
            if isinstance(error, LogDirFailure):
                self._on_failure(error)
            elif error is not None:
                log.error("deleting a log failed", exc_info=error)
            else:
                self._events.add(event, topic_partition)

        self._background.submit("delete-log", work, then)
