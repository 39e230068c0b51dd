"""Taking the directories of logs that nobody has any more out of sight, in a thread: to rename one may wait for the journal of the file
system, on a busy disk for a tenth of a second, and a topic has hundreds of partitions.

`LogManager` owns one. The log is in nobody's list when it is retired, and its files go later (`LogDeletions`). A crash before the rename
leaves the log where it was; so the controller is told that it is deleted only when all of that is done (`when_done`), and the checkpoints
are written: a new log of that name must not inherit the offsets of the old one, or a kill would cost it what lies below them.

Invariant: a directory that has the name of a retired log's is not made, nor looked for, before `settle` has returned.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial

from storage.disk.background import Background
from storage.errors import LogDirFailure
from storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

RETIRE_LOG = "retire-log"
"""The name of this work."""


class Retirement:
    """Of one log: its directory is to be renamed to `directory`."""

    __slots__ = ("_has_run", "_lock", "directory", "failure", "former", "log")

    def __init__(self, gone: PartitionLog, directory: str) -> None:
        self.log = gone
        self.former = gone.directory
        self.directory = directory
        self.failure: LogDirFailure | None = None
        """What the disk said, once `run` has returned."""
        self._lock = threading.Lock()
        self._has_run = False

    def run(self) -> None:
        """Blocks until the directory is renamed, whoever does it; for any thread."""
        with self._lock:
            if self._has_run:
                return
            self._has_run = True
            try:
                self.log.small_files.move_to(self.directory)
            except OSError as error:
                self.failure = LogDirFailure(self.log.log_dir, str(error.filename or self.former), error.strerror or str(error))


class Retirements:
    """All of a broker. Called on the event loop, but for `settle`."""

    __slots__ = ("_background", "_on_failure", "_pending", "_when_written")

    def __init__(
        self, background: Background, on_failure: Callable[[LogDirFailure], None], when_written: Callable[[Callable[[], None]], None]
    ) -> None:
        """`on_failure` is called on the loop when the disk refuses; `when_written` is that of the checkpoints."""
        self._background = background
        self._on_failure = on_failure
        self._when_written = when_written
        self._pending: dict[str, Retirement] = {}
        """By the directory's former name."""

    def begin(self, retirement: Retirement, then: Callable[[], None]) -> None:
        """Has a thread do it; then the log is told where it is, and `then` is called. Not after a failure: the log is only closed."""
        self._pending[retirement.former] = retirement
        self._background.submit(RETIRE_LOG, retirement.run, lambda _: self._finish(retirement, then, self._on_failure))

    def do_now(self, retirement: Retirement, then: Callable[[], None]) -> None:
        """The same, in this turn of the loop. Blocks. A failure is reported in the next turn, when another log has taken the place."""
        retirement.run()
        self._finish(retirement, then, lambda failure: self._background.schedule(RETIRE_LOG, 0, 0, lambda: self._on_failure(failure)))

    def settle(self, directory: str) -> None:
        """The directory that has this name on return is not one of a retired log. Blocks; for any thread."""
        retirement = self._pending.get(directory)
        if retirement is not None:
            retirement.run()

    def settle_all(self) -> None:
        """Blocks until all that was begun is done. For the time when the loop runs no more."""
        for retirement in self._pending.values():
            retirement.run()
            if retirement.failure is not None:
                log.error("%s is not renamed, and stays as a stray: %s", retirement.former, retirement.failure)

    def when_done(self, then: Callable[[BaseException | None], None]) -> None:
        """Calls `then` when all that was begun so far is done, and no checkpoint names those logs any more."""

        def renamed(error: BaseException | None) -> None:
            self._when_written(partial(then, error))

        if self._pending:
            self._background.submit(RETIRE_LOG, _nothing, renamed)  # work of one name is done in this order
        else:
            renamed(None)

    def _finish(self, retirement: Retirement, then: Callable[[], None], on_failure: Callable[[LogDirFailure], None]) -> None:
        gone = retirement.log
        if self._pending.get(retirement.former) is retirement:
            del self._pending[retirement.former]
        if retirement.failure is not None:
            gone.close_without_writing()
            on_failure(retirement.failure)
            return
        gone.moved_to(retirement.directory)
        then()


def _nothing() -> None:
    pass
