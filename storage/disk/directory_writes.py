"""Writes the small files and checkpoints of one log directory in threads, a batch at a time.

Owned by `DeferredWrites`, which gives it turns of the event loop. Requests of one turn of the loop form a batch, or more
than one if there are many. One batch at a time is written, so later requests become durable later. A few threads share
the writes of a batch, because a file system combines concurrent syncs (400 files of a topic of 200 partitions: 0.10 s
instead of 0.20).

The content of a checkpoint is collected from all logs, with pauses. It is written after all earlier
requests, so that a recovery point can rely on the leader epochs below it. Requests made while checkpoints are collected
belong to the next batch, so that frequent requests do not delay others.

Invariants: after a disk error nothing more is written, because the log directory is offline until the next start. No
request is lost for another error, such as a lack of memory: it is tried again, and later requests wait for it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from ottla.pauses import is_over
from ottla.storage.disk.background import Background
from ottla.storage.errors import SHORTAGES, LogDirFailure

log = logging.getLogger(__name__)

Write = Callable[[], None]
OnWritten = Callable[[LogDirFailure | None], None]
"""Called with the failure of the log directory, after which nothing is durable, or None."""


class Checkpoint(NamedTuple):
    """A checkpoint over many logs."""

    gather: Iterator[None]
    """Collects the content on the loop, a part with each step."""
    write: Write
    """Writes the content durably, in a thread."""


WRITES_PER_BATCH = 200

_THREADS = 4
_WRITES_PER_THREAD = 8
"""Writes per thread at which another thread is worthwhile."""
_BACKOFF_MS = 1000
"""Delay after an attempt that failed for another reason than the disk, milliseconds."""


class DirectoryWrites:
    """The writes of one log directory. Called on the event loop only."""

    __slots__ = (
        "_background",
        "_batch",
        "_busy",
        "_checkpoints",
        "_failure",
        "_gathered",
        "_gathering",
        "_is_reported",
        "_later",
        "_log_dir",
        "_on_failure",
        "_prepared",
        "_reason",
        "_round",
        "_threads",
        "_unwritten",
        "_waiting",
        "_waiting_for_next",
        "_writes",
        "is_busy",
    )

    def __init__(
        self,
        log_dir: str,
        background: Background,
        later: Callable[[Callable[[], None]], None],
        on_failure: Callable[[LogDirFailure], None],
    ) -> None:
        """`later` calls a function in a later turn of the loop. `on_failure` is called once, on the loop, when the disk failed."""
        self.is_busy = False
        """Whether requests are left."""
        self._log_dir = log_dir
        self._background = background
        self._later = later
        self._on_failure = on_failure
        self._writes: dict[object, Callable[[], Write]] = {}
        self._checkpoints: dict[object, Callable[[], Checkpoint]] = {}
        self._round: dict[object, Callable[[], Checkpoint]] = {}
        """Checkpoints at the end of this batch that are not collected yet."""
        self._gathering: tuple[object, Callable[[], Checkpoint], Checkpoint] | None = None
        self._gathered: dict[object, Write] = {}
        """Checkpoints that wait for earlier writes."""
        self._prepared: dict[object, Write] = {}
        """Writes of the next batch. A request that is repeated while they are prepared is written once, because threads
        share the batch."""
        self._batch: deque[Write] = deque()
        """Writes of the current batch that no thread has taken yet."""
        self._unwritten: list[Write] = []
        """Writes of the current batch that failed for another reason than the disk, and will be tried again."""
        self._reason: Exception | None = None
        """The reason for the last of them."""
        self._failure: LogDirFailure | None = None
        self._is_reported = False
        self._threads = 0
        self._busy = threading.Condition()
        self._waiting: list[OnWritten] = []
        """Callbacks that wait for the checkpoints of this batch."""
        self._waiting_for_next: list[OnWritten] = []

    def write(self, key: object, prepare: Callable[[], Write]) -> None:
        """See `DeferredWrites.write`."""
        self._writes[key] = prepare
        self._arm()

    def checkpoint(self, key: object, prepare: Callable[[], Checkpoint]) -> None:
        """See `DeferredWrites.checkpoint`."""
        asked = self._round if key in self._round else self._checkpoints
        asked[key] = prepare
        self._arm()

    def when_written(self, then: OnWritten) -> None:
        """Calls `then` on the loop when all earlier requests have been tried; at once if none is left."""
        if self.is_busy:
            self._waiting_for_next.append(then)
        else:
            then(self._failure)

    def run_now(self) -> None:
        """Writes all requests in this thread, after those in progress. One that cannot be written counts as a disk failure."""
        self._work()
        with self._busy:
            self._busy.wait_for(lambda: not self._threads)
        try:
            self._work_through(self._take_unwritten())
            self._round |= self._checkpoints
            self._checkpoints.clear()
            while self._gather_some():
                pass
            self._prepare(len(self._writes))
            for found in (self._prepared, self._gathered):
                self._work_through(list(found.values()))
                found.clear()
        except Exception as error:
            log.error("%s: small files or checkpoints cannot be written", self._log_dir, exc_info=error)
            if self._failure is None:
                self._failure = LogDirFailure(self._log_dir, self._log_dir, f"its small files cannot be written: {error!r}")
        self._report()

    def _work_through(self, writes: list[Write]) -> None:
        """Writes in this thread. Raises the error of one that failed for another reason than the disk."""
        self._batch.extend(writes)
        self._work()
        if self._unwritten and self._reason is not None:
            raise self._reason

    def _arm(self) -> None:
        if not self.is_busy:
            self.is_busy = True
            self._later(self._begin)

    def _begin(self) -> None:
        self._round, self._checkpoints = self._checkpoints, {}
        self._waiting += self._waiting_for_next
        self._waiting_for_next = []
        self._start()

    def _start(self) -> None:
        try:
            is_complete = self._prepare_some()
        except Exception as error:
            self._try_again(self._start, error)
            return
        if not is_complete:
            self._later(self._start)
            return
        with_checkpoints = not self._writes
        writes, self._prepared = list(self._prepared.values()), {}
        self._run(writes, self._write_checkpoints if with_checkpoints else self._end)

    def _prepare_some(self) -> bool:
        """Prepares the batch until the time of this turn is over; returns whether the batch is complete."""
        while self._gather_some():
            if is_over():
                return False
        # A checkpoint depends on the writes before it: those that remain when it is collected.
        while self._writes and len(self._prepared) < WRITES_PER_BATCH:
            self._prepare(1)
            if is_over():
                break
        return not self._writes or len(self._prepared) >= WRITES_PER_BATCH

    def _gather_some(self) -> bool:
        """Advances the requested checkpoints by one step; False when none is left to collect."""
        if self._gathering is None:
            if not self._round:
                return False
            key, prepare = next(iter(self._round.items()))
            self._gathering = key, prepare, prepare()
            del self._round[key]
        key, prepare, checkpoint = self._gathering
        try:
            for _ in checkpoint.gather:
                return True
        except Exception:
            self._gathering = None
            self._round[key] = prepare  # it will be collected from the beginning
            raise
        self._gathering = None
        self._gathered[key] = checkpoint.write
        return bool(self._round)

    def _prepare(self, at_most: int) -> None:
        for key in list(islice(self._writes, at_most)):
            self._prepared[key] = self._writes[key]()
            del self._writes[key]

    def _write_checkpoints(self) -> None:
        checkpoints, self._gathered = list(self._gathered.values()), {}
        reached, self._waiting = self._waiting, []

        def then() -> None:
            self._end()
            for each in reached:
                try:
                    each(self._failure)
                except Exception:
                    log.exception("%s: an operation that waited for checkpoints failed", self._log_dir)

        self._run(checkpoints, then)

    def _end(self) -> None:
        self.is_busy = False
        if self._writes or self._checkpoints or self._gathered or self._waiting or self._waiting_for_next:
            self._arm()

    def _run(self, writes: list[Write], after: Callable[[], None]) -> None:
        if not writes:
            after()
            return
        self._batch.extend(writes)
        left = max(1, min(_THREADS, len(writes) // _WRITES_PER_THREAD))

        def then(error: BaseException | None) -> None:
            nonlocal left
            if error is not None:
                log.error("%s: writing checkpoints failed", self._log_dir, exc_info=error)
            left -= 1
            if left:
                return
            self._report()
            self._unwritten += self._batch
            self._batch.clear()
            if self._unwritten and self._failure is None:
                self._try_again(lambda: self._run(self._take_unwritten(), after), self._reason)
            else:
                after()

        for number in range(left):
            # Work of one name runs one at a time.
            self._background.submit(f"deferred-writes {self._log_dir} {number}", self._work, then)

    def _work(self) -> None:
        """Writes until the batch is empty; on any thread."""
        with self._busy:
            self._threads += 1
        try:
            while True:
                try:
                    write = self._batch.popleft()
                except IndexError:
                    return
                if self._failure is None:
                    try:
                        write()
                    except Exception as error:
                        if isinstance(error, OSError) and error.errno not in SHORTAGES:
                            self._failure = LogDirFailure.of(error, self._log_dir, self._log_dir)
                        else:
                            self._unwritten.append(write)
                            self._reason = error
        finally:
            with self._busy:
                self._threads -= 1
                self._busy.notify_all()

    def _take_unwritten(self) -> list[Write]:
        unwritten, self._unwritten = self._unwritten, []
        return unwritten

    def _try_again(self, action: Callable[[], None], error: Exception | None) -> None:
        self._background.schedule("deferred-writes", _BACKOFF_MS, 0, action)
        unforeseen = None if isinstance(error, OSError) else error
        log.error("%s: writing small files or checkpoints failed; it will be retried: %s", self._log_dir, error, exc_info=unforeseen)

    def _report(self) -> None:
        if self._failure is not None and not self._is_reported:
            self._is_reported = True
            self._on_failure(self._failure)
