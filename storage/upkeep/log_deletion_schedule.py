"""Deletes the directories of deleted partitions, some time after they were renamed, in threads.

Owned by `LogManager`. The delay lets reads in progress end; the directory's name ends with `-delete`, so that the next
start finds the remaining ones.
"""

import logging
from collections.abc import Callable

from storage.disk.background import Background
from storage.disk.filesystem import FileSystem
from storage.errors import LogDirFailure
from storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)


class LogDeletions:
    """All deletions of a broker."""

    __slots__ = ("_background", "_fs", "_on_failure")

    def __init__(self, filesystem: FileSystem, background: Background, on_failure: Callable[[LogDirFailure], None]) -> None:
        """`on_failure` is called on the loop when the disk fails."""
        self._fs = filesystem
        self._background = background
        self._on_failure = on_failure

    def delete_later(self, gone: PartitionLog, delay_ms: int) -> None:
        """Deletes a renamed log after the delay."""
        log.info("%s: renamed to %s, deleted in %d ms", gone.topic_partition, gone.directory, delay_ms)

        def begin() -> None:
            gone.close_without_writing()  # on the loop, where others may access it
            self._submit(gone.delete)

        self._background.schedule("delete-log", delay_ms, 0, begin)

    def remove_later(self, log_dir: str, path: str, delay_ms: int) -> None:
        """Removes a directory that an earlier run left."""
        log.info("%s: belongs to a deleted partition, removed in %d ms", path, delay_ms)

        def remove() -> None:
            try:
                for name in self._fs.list_directory(path):
                    self._fs.unlink(f"{path}/{name}")
                self._fs.remove_directory(path)
            except FileNotFoundError:
                return
            except OSError as error:
                raise LogDirFailure(log_dir, path, error.strerror or str(error)) from error
            log.info("%s: removed", path)

        self._background.schedule("delete-log", delay_ms, 0, lambda: self._submit(remove))

    def _submit(self, work: Callable[[], None]) -> None:
        self._background.submit("delete-log", work, self._then)

    def _then(self, error: BaseException | None) -> None:
        if isinstance(error, LogDirFailure):
            self._on_failure(error)
        elif error is not None:
            log.error("deleting a log failed", exc_info=error)
