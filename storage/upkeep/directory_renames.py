"""Renames the directories of removed logs in a thread: a rename may wait for the file system's journal, on a busy disk
for a tenth of a second.

Owned by `LogManager`. The log is already removed from all lists, and its files are deleted later (`LogDeletions`). A crash before the
rename leaves the log in place. So the deletion is confirmed to the controller only after the renames are done and the checkpoints are
written (`when_done`). Otherwise a new log of that name would inherit the offsets of the old one, and after a kill lose the records below
them.

Invariant: no directory with the name of a removed log is created or looked up before `finish` has returned for it.
"""

import logging
import threading
from collections.abc import Callable, Collection
from functools import partial

from ottla.storage.disk.background import Background
from ottla.storage.disk.directory_writes import OnWritten
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

RENAME_LOG = "rename-log"
"""Name of this background work, followed by the log directory: each directory may be a disk of its own."""


class DirectoryRename:
    """The rename of one log's directory to `directory`."""

    __slots__ = ("_has_run", "_lock", "directory", "failure", "former", "log")

    def __init__(self, gone: PartitionLog, directory: str) -> None:
        self.log = gone
        self.former = gone.directory
        self.directory = directory
        self.failure: LogDirFailure | None = None
        """The disk failure, once `run` has returned."""
        self._lock = threading.Lock()
        self._has_run = False

    def run(self) -> None:
        """Blocks until the directory is renamed, by this or another thread."""
        with self._lock:
            if self._has_run:
                return
            self._has_run = True
            try:
                self.log.files.small_files.move_to(self.directory)
            except OSError as error:
                self.failure = LogDirFailure.of(error, self.log.log_dir, self.former)
            except Exception as error:  # the directory may have its former name, in which the next log would find these files
                log.exception("%s cannot be renamed", self.former)
                self.failure = LogDirFailure(self.log.log_dir, self.former, repr(error))


class DirectoryRenames:
    """All renames of a broker. Called on the event loop, except for `finish`."""

    __slots__ = ("_background", "_on_failure", "_pending", "_when_written")

    def __init__(
        self, background: Background, on_failure: Callable[[LogDirFailure], None], when_written: Callable[[str, OnWritten], None]
    ) -> None:
        """`on_failure` is called on the loop when the disk fails; `when_written` is that of the checkpoints."""
        self._background = background
        self._on_failure = on_failure
        self._when_written = when_written
        self._pending: dict[str, DirectoryRename] = {}
        """Renames by the former path of the directory."""

    def begin(self, rename: DirectoryRename, then: Callable[[], None]) -> None:
        """Renames the directory in a thread, then updates the log's path and calls `then`. After a failure the log is
        only closed."""
        self._pending[rename.former] = rename
        self._background.submit(f"{RENAME_LOG} {rename.log.log_dir}", rename.run, lambda _: self._finish(rename, then, self._on_failure))

    def do_now(self, rename: DirectoryRename, then: Callable[[], None]) -> None:
        """Renames the directory in this turn of the loop. Blocks. A failure is reported in the next turn, when another
        log has taken the place."""
        rename.run()
        self._finish(rename, then, lambda failure: self._background.schedule(RENAME_LOG, 0, 0, lambda: self._on_failure(failure)))

    def finish(self, directory: str) -> None:
        """Ensures that a directory with this name is not one of a removed log. Blocks; callable from any thread."""
        rename = self._pending.get(directory)
        if rename is not None:
            rename.run()

    def finish_all(self) -> None:
        """Blocks until all renames are done. For use after the loop has stopped."""
        for rename in self._pending.values():
            rename.run()
            if rename.failure is not None:
                log.error("%s cannot be renamed and remains as a stray log: %s", rename.former, rename.failure)

    def when_done(self, log_dirs: Collection[str], then: Callable[[BaseException | None], None]) -> None:
        """Calls `then` when all renames begun so far in these log directories are done, and no checkpoint there contains
        those logs any more."""
        left = len(log_dirs)
        if not left:
            then(None)

        def on_written(_: LogDirFailure | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                then(None)

        pending = {rename.log.log_dir for rename in self._pending.values()}
        for log_dir in log_dirs:
            if log_dir in pending:
                # Work of one name runs in this order.
                self._background.submit(f"{RENAME_LOG} {log_dir}", _nothing, partial(self._on_renamed, log_dir, on_written))
            else:
                self._when_written(log_dir, on_written)

    def _on_renamed(self, log_dir: str, then: OnWritten, _: BaseException | None) -> None:
        self._when_written(log_dir, then)

    def _finish(self, rename: DirectoryRename, then: Callable[[], None], on_failure: Callable[[LogDirFailure], None]) -> None:
        gone = rename.log
        if self._pending.get(rename.former) is rename:
            del self._pending[rename.former]
        if rename.failure is not None:
            gone.close_without_writing()
            on_failure(rename.failure)
            return
        gone.moved_to(rename.directory)
        then()


def _nothing() -> None:
    pass
