"""Small files that must be durable soon, written by a thread so that the event loop never waits for an fsync.

`LogManager` owns one. What it is asked to write within one turn of the loop goes out as one batch, and one batch at a time is under
way: so what was asked later is on the disk later. Checkpoints come last in their batch, which is what lets a recovery point rely on the
leader epochs below it.

Creating a topic of 200 partitions costs no fsync on the loop at all; what a crash loses meanwhile, recovery finds in the batches
themselves.
"""

import logging
import threading
from collections.abc import Callable

from storage.background import Background
from storage.errors import LogDirFailure

log = logging.getLogger(__name__)

Write = Callable[[], None]


class DeferredWrites:
    """Asked on the event loop only."""

    __slots__ = ("_background", "_checkpoints", "_disk", "_is_armed", "_on_failure", "_writes")

    def __init__(self, background: Background, on_failure: Callable[[LogDirFailure], None]) -> None:
        """`on_failure` is called on the loop for each write that the disk refused."""
        self._background = background
        self._on_failure = on_failure
        self._writes: dict[object, tuple[str, Callable[[], Write]]] = {}
        self._checkpoints: dict[object, tuple[str, Callable[[], Write]]] = {}
        self._is_armed = False
        self._disk = threading.Lock()  # only shutdown ever waits for it: a batch may be under way then

    def write(self, key: object, log_dir: str, prepare: Callable[[], Write]) -> None:
        """`prepare` is called on the loop when the batch starts, and returns what a thread is to do. One key is one request."""
        self._writes[key] = (log_dir, prepare)
        self._arm()

    def checkpoint(self, key: object, log_dir: str, prepare: Callable[[], Write]) -> None:
        """As `write`, but after everything that was asked for before."""
        self._checkpoints[key] = (log_dir, prepare)
        self._arm()

    def run_now(self) -> None:
        """Does what is pending, in this thread. For shutdown. Failures are reported as ever."""
        for failure in self._run(self._take()):
            self._on_failure(failure)

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._background.schedule("deferred-writes", 0, 0, self._start)

    def _start(self) -> None:
        batch = self._take()
        failures: list[LogDirFailure] = []

        def then(error: BaseException | None) -> None:
            self._is_armed = False
            if error is not None:
                log.error("writing checkpoints failed", exc_info=error)
            for failure in failures:
                self._on_failure(failure)
            if self._writes or self._checkpoints:
                self._arm()

        self._background.submit("deferred-writes", lambda: failures.extend(self._run(batch)), then)

    def _take(self) -> list[tuple[str, Write]]:
        batch = [(log_dir, prepare()) for log_dir, prepare in (*self._writes.values(), *self._checkpoints.values())]
        self._writes.clear()
        self._checkpoints.clear()
        return batch

    def _run(self, batch: list[tuple[str, Write]]) -> list[LogDirFailure]:
        failures: dict[str, LogDirFailure] = {}
        with self._disk:
            for log_dir, write in batch:
                if log_dir in failures:
                    continue
                try:
                    write()
                except OSError as error:
                    failures[log_dir] = LogDirFailure(log_dir, str(error.filename or log_dir), error.strerror or str(error))
        return list(failures.values())
