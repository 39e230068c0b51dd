"""Writes small files that must be durable soon in threads, so that the event loop never waits for an fsync.

Owned by `LogManager`. Requests of one turn of the loop form a batch, or more than one if there are many. One batch at a
time is written, so later requests become durable later. A few threads share the writes of a batch, because a file
system combines concurrent syncs (400 files of a topic of 200 partitions: 0.10 s instead of 0.20).

The content of a checkpoint is collected from all logs, some per turn of the loop. It is written after all earlier
requests, so that a recovery point can rely on the leader epochs below it. Requests made while checkpoints are collected
belong to the next batch, so that frequent requests do not delay others.

Creating a topic of 200 partitions takes no fsync on the loop; after a crash recovery restores the lost files from the
batches.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from storage.disk.background import Background
from storage.errors import LogDirFailure

log = logging.getLogger(__name__)

Write = Callable[[], None]
_Writes = dict[object, tuple[str, Callable[[], Write]]]


class Checkpoint(NamedTuple):
    """A checkpoint over many logs."""

    gather: Iterator[None]
    """Collects the content on the loop, a part with each step."""
    write: Write
    """Writes the content durably, in a thread."""


WRITES_PER_BATCH = 200
WRITES_PER_TURN = 50
"""Writes prepared per turn; each takes up to 10 µs on the loop."""

_THREADS = 4
_WRITES_PER_THREAD = 8
"""Writes per thread at which another thread is worthwhile."""


class DeferredWrites:
    """The writes of a broker. Requested on the event loop only."""

    __slots__ = (
        "_background",
        "_batch",
        "_busy",
        "_checkpoints",
        "_failures",
        "_gathered",
        "_gathering",
        "_is_armed",
        "_on_failure",
        "_prepared",
        "_reached",
        "_round",
        "_threads",
        "_writes",
    )

    def __init__(self, background: Background, on_failure: Callable[[LogDirFailure], None]) -> None:
        """`on_failure` is called on the loop for each log directory whose disk failed."""
        self._background = background
        self._on_failure = on_failure
        self._writes: _Writes = {}
        self._checkpoints: dict[object, tuple[str, Callable[[], Checkpoint]]] = {}
        self._round: dict[object, tuple[str, Callable[[], Checkpoint]]] = {}
        """Checkpoints at the end of this batch that are not collected yet."""
        self._gathering: tuple[object, str, Checkpoint] | None = None
        self._gathered: dict[object, tuple[str, Write]] = {}
        """Checkpoints that wait for earlier writes."""
        self._prepared: dict[object, tuple[str, Write]] = {}
        """Writes of the next batch. A request that is repeated while they are prepared is written once, because threads
        share the batch."""
        self._is_armed = False
        self._batch: deque[tuple[str, Write]] = deque()
        """Writes of the present batch that no thread has taken yet."""
        self._failures: dict[str, LogDirFailure] = {}
        self._threads = 0
        self._busy = threading.Condition()
        self._reached: list[Callable[[], None]] = []
        """Callbacks that wait for writes of this batch or earlier ones."""

    def write(self, key: object, log_dir: str, prepare: Callable[[], Write]) -> None:
        """Requests a write. `prepare` is called on the loop when the batch starts, and returns the work for a thread. A
        key is one request."""
        self._writes[key] = (log_dir, prepare)
        self._arm()

    def checkpoint(self, key: object, log_dir: str, prepare: Callable[[], Checkpoint]) -> None:
        """Requests a checkpoint. `prepare` is called on the loop when its turn comes; it is written after all earlier
        requests."""
        asked = self._round if key in self._round else self._checkpoints
        asked[key] = (log_dir, prepare)
        self._arm()

    def when_written(self, then: Callable[[], None]) -> None:
        """Calls `then` on the loop when all earlier requests have been tried; at once if none is left."""
        if self._is_armed:
            # An empty checkpoint, because checkpoints are written after all other requests.
            self._checkpoints[object()] = ("", lambda: Checkpoint(iter(()), lambda: self._reached.append(then)))
        else:
            then()

    def run_now(self) -> None:
        """Writes all requests in this thread, after those in progress. For shutdown. Failures are reported as usual."""
        self._work()
        with self._busy:
            self._busy.wait_for(lambda: not self._threads)
        self._round |= self._checkpoints
        self._checkpoints.clear()
        while self._gather_some():
            pass
        for found in ((self._prepared | _take(self._writes)).values(), self._take_gathered()):
            self._batch.extend(found)
            self._work()
        self._report()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._background.schedule("deferred-writes", 0, 0, self._begin)

    def _begin(self) -> None:
        self._round, self._checkpoints = self._checkpoints, {}
        self._start()

    def _start(self) -> None:
        if self._gather_some():
            self._background.schedule("deferred-writes", 0, 0, self._start)
            return
        # A checkpoint depends on the writes before it: those that remain when it is collected.
        self._prepared |= _take(self._writes, min(WRITES_PER_TURN, WRITES_PER_BATCH - len(self._prepared)))
        if self._writes and len(self._prepared) < WRITES_PER_BATCH:
            self._background.schedule("deferred-writes", 0, 0, self._start)
            return
        writes, self._prepared = list(self._prepared.values()), {}
        checkpoints = [] if self._writes else self._take_gathered()
        self._run(writes, lambda: self._run(checkpoints, self._end))

    def _gather_some(self) -> bool:
        """Advances the requested checkpoints by one step; False when none is left to collect."""
        if self._gathering is None:
            if not self._round:
                return False
            key = next(iter(self._round))
            log_dir, prepare = self._round.pop(key)
            self._gathering = key, log_dir, prepare()
        key, log_dir, checkpoint = self._gathering
        for _ in checkpoint.gather:
            return True
        self._gathering = None
        self._gathered[key] = (log_dir, checkpoint.write)
        return bool(self._round)

    def _take_gathered(self) -> list[tuple[str, Write]]:
        found = list(self._gathered.values())
        self._gathered.clear()
        return found

    def _end(self) -> None:
        self._is_armed = False
        if self._writes or self._checkpoints or self._gathered:
            self._arm()
        reached, self._reached = self._reached, []
        for then in reached:
            then()

    def _run(self, writes: list[tuple[str, Write]], after: Callable[[], None]) -> None:
        if not writes:
            after()
            return
        self._batch.extend(writes)
        left = max(1, min(_THREADS, len(writes) // _WRITES_PER_THREAD))

        def then(error: BaseException | None) -> None:
            nonlocal left
            if error is not None:
                log.error("writing checkpoints failed", exc_info=error)
            left -= 1
            if not left:
                self._report()
                after()

        for number in range(left):
            # Work of one name runs one at a time.
            self._background.submit(f"deferred-writes-{number}", self._work, then)

    def _work(self) -> None:
        """Writes until the batch is empty; on any thread."""
        with self._busy:
            self._threads += 1
        try:
            while True:
                try:
                    log_dir, write = self._batch.popleft()
                except IndexError:
                    return
                if log_dir not in self._failures:
                    try:
                        write()
                    except OSError as error:
                        self._failures[log_dir] = LogDirFailure(log_dir, str(error.filename or log_dir), error.strerror or str(error))
        finally:
            with self._busy:
                self._threads -= 1
                self._busy.notify_all()

    def _report(self) -> None:
        failures = list(self._failures.values())
        self._failures.clear()
        for failure in failures:
            self._on_failure(failure)


def _take(asked: _Writes, at_most: int | None = None) -> dict[object, tuple[str, Write]]:
    found = {}
    for key in list(islice(asked, at_most)):
        log_dir, prepare = asked.pop(key)
        found[key] = (log_dir, prepare())
    return found
