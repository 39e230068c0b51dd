"""Writes small files that must be durable soon in threads, so that the event loop never waits for an fsync.

Owned by `LogManager`. Each log directory has its own `DirectoryWrites`, because each may be a disk of its own: a disk
that hangs delays no other. All of them share the turns of the loop: one step of one directory is done in each.

Creating a topic of 200 partitions takes no fsync on the loop; after a crash recovery restores the lost files from the
batches.
"""

from collections import deque
from collections.abc import Callable

from ottla.storage.disk.background import Background
from ottla.storage.disk.directory_writes import Checkpoint, DirectoryWrites, OnWritten, Write
from ottla.storage.errors import LogDirFailure


class DeferredWrites:
    """The writes of a broker. Requested on the event loop only."""

    __slots__ = ("_background", "_directories", "_on_failure", "_steps")

    def __init__(self, background: Background, on_failure: Callable[[LogDirFailure], None]) -> None:
        """`on_failure` is called on the loop for each log directory whose disk failed."""
        self._background = background
        self._on_failure = on_failure
        self._directories: dict[str, DirectoryWrites] = {}
        self._steps: deque[Callable[[], None]] = deque()
        """Steps of the directories, one for each turn of the loop."""

    def write(self, key: object, log_dir: str, prepare: Callable[[], Write]) -> None:
        """Requests a write. `prepare` is called on the loop when the batch starts, and returns the work for a thread. A
        key is one request of its log directory."""
        self._of(log_dir).write(key, prepare)

    def checkpoint(self, key: object, log_dir: str, prepare: Callable[[], Checkpoint]) -> None:
        """Requests a checkpoint. `prepare` is called on the loop when its turn comes; it is written after all earlier
        requests for the log directory."""
        self._of(log_dir).checkpoint(key, prepare)

    def when_written(self, log_dir: str, then: OnWritten) -> None:
        """Calls `then` on the loop when all earlier requests for the log directory have been tried, with its failure or
        None; at once if none is left."""
        self._of(log_dir).when_written(then)

    def run_now(self) -> None:
        """Writes all requests in this thread, after those in progress. For shutdown. Failures are reported as usual."""
        for each in list(self._directories.values()):
            each.run_now()

    def _of(self, log_dir: str) -> DirectoryWrites:
        found = self._directories.get(log_dir)
        if found is None:
            found = self._directories[log_dir] = DirectoryWrites(log_dir, self._background, self._later, self._on_failure)
        return found

    def _later(self, step: Callable[[], None]) -> None:
        self._steps.append(step)
        if len(self._steps) == 1:
            self._arm()

    def _arm(self) -> None:
        self._background.schedule("deferred-writes", 0, 0, self._turn)

    def _turn(self) -> None:
        step = self._steps.popleft()
        if self._steps:
            self._arm()
        step()
