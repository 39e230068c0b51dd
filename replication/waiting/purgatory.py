"""Holds requests that wait for an event or a time limit: Produce with acks=all, long-poll Fetch, DeleteRecords, group joins.

A handler makes a `DelayedOperation`, and the `Purgatory` tries to complete it at once. If that fails, the operation is added to the
`Waiters` of the partitions (or other objects) that it depends on, and to the timing wheel. The first event or the time limit completes it,
exactly once. It holds no handler slot meanwhile.

A watch list drops completed operations at its next notification. So an operation that completed by time, or through another partition, may
stay in the lists of quiet partitions. After every `purge_interval` such operations the purgatory removes them
(fetch.purgatory.purge.interval.requests and others), so their number is limited, as in Apache Kafka.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from math import ceil
from typing import Final, final

from ottla.replication.ports.waiters import Waiters
from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel

logger = logging.getLogger(__name__)

SWEPT_FROM: Final = 1000
"""Length from which on completed operations are removed from a queue."""
MAX_TIMEOUTS: Final = 16
"""Number of timeouts with a queue. An operation with any further timeout has its own timer."""


class DelayedOperation:
    """An operation that completes once: when `try_complete` finds its condition true, or at its time limit."""

    __slots__ = ("_purgatory", "_timer", "completed", "deadline_ms", "watched")

    def __init__(self) -> None:
        self.completed = False
        self.watched = 0  # watch lists that contain it while it waits
        self.deadline_ms = 0  # for the queue of its timeout
        self._timer: TimerTask | None = None
        self._purgatory: Purgatory | None = None

    def try_complete(self) -> bool:
        """Check the condition, and call `force_complete` if it is true. Returns whether the operation is complete."""
        raise NotImplementedError  # a compiled class has no abstract methods

    def on_complete(self) -> None:
        """Do the delayed work: answer. Called once."""
        raise NotImplementedError  # a compiled class has no abstract methods

    def on_expiration(self) -> None:
        """Called at the time limit, before `on_complete`, which then answers with the current state."""

    def force_complete(self) -> bool:
        """Complete now. Returns False if it was complete already."""
        if not self._finish():
            return False
        self.on_complete()
        return True

    def cancel(self) -> None:
        """End without an answer, because the connection is closed."""
        self._finish()

    def expire(self) -> None:
        """Complete at the time limit."""
        if not self.completed:
            if self._purgatory is not None:
                self._purgatory.expirations += 1
            self.on_expiration()
            self.force_complete()

    def _finish(self) -> bool:
        if self.completed:
            return False
        self.completed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._purgatory is not None:
            self._purgatory._on_finished(self)
            self._purgatory = None
        return True


@final
class Deadlines:
    """Queues the operations that have the same timeout: first in, first due. One timer of the wheel serves all of them.

    Nearly all requests of a kind have the same timeout, and nearly all complete long before it. So an operation costs an entry at the end
    of a queue and its removal from the front (0.7 µs), where its own timer would cost 3 µs. Operations that complete behind a waiting one
    are removed when they are the larger part of a long queue.
    """

    __slots__ = ("_clock", "_is_armed", "_queue", "_sweep_at", "_timeout_ms", "_wheel")

    def __init__(self, wheel: TimingWheel, timeout_ms: float) -> None:
        self._wheel = wheel
        self._clock = wheel.clock
        self._timeout_ms = ceil(timeout_ms)
        self._queue: deque[DelayedOperation] = deque()
        self._sweep_at = SWEPT_FROM
        self._is_armed = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether no operation waits and no timer is set."""
        return not (self._is_armed or self._queue)

    def add(self, operation: DelayedOperation) -> None:
        """Expire an operation in `timeout_ms`, unless it is complete by then."""
        queue = self._queue
        while queue:
            first = queue[0]
            if not first.completed:
                break
            queue.popleft()
        operation.deadline_ms = int(self._clock() * 1000) + self._timeout_ms
        queue.append(operation)
        if not self._is_armed:
            self._is_armed = True
            self._wheel.add(self._timeout_ms, self._on_timer)
        if len(queue) > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        self._queue = deque([each for each in self._queue if not each.completed])
        self._sweep_at = max(SWEPT_FROM, 2 * len(self._queue))

    def _on_timer(self) -> None:
        now_ms = int(self._clock() * 1000)
        # Only those that are due now: operations that are added while one expires have their own time.
        due = []
        queue = self._queue
        while queue and (queue[0].completed or queue[0].deadline_ms <= now_ms):
            due.append(queue.popleft())
        self._is_armed = bool(queue)
        if queue:
            self._wheel.add(queue[0].deadline_ms - now_ms, self._on_timer)
        for operation in due:
            try:
                operation.expire()
            except Exception:
                logger.exception("an operation failed when it expired; the others go on")


@final
class Purgatory:
    """The delayed operations of one kind: `delayed` of them wait (NumDelayedOperations), in `watched` lists (PurgatorySize)."""

    __slots__ = ("_dead", "_deadlines", "_lists", "_timing_wheel", "delayed", "expirations", "name", "purge_interval", "watched")

    def __init__(self, name: str, timing_wheel: TimingWheel, purge_interval: int = 1000) -> None:
        self.name = name
        self.purge_interval = purge_interval
        self.delayed = 0
        self.watched = 0
        self.expirations = 0
        self._timing_wheel = timing_wheel
        self._deadlines: dict[float, Deadlines] = {}
        self._lists: set[Waiters] = set()  # lists to which an operation was added since the last purge
        self._dead = 0  # operations that finished since the last purge and may still be in lists

    def try_complete_else_watch(self, operation: DelayedOperation, watch_lists: Iterable[Waiters], timeout_ms: float) -> bool:
        """Returns True if the operation completes in this call (also because `timeout_ms` is not positive); otherwise it waits."""
        if operation.completed or operation.try_complete():
            return True
        # Not when an operation finishes, because a list is being walked then.
        if self._dead > self.purge_interval:
            self.purge()
        if timeout_ms <= 0:
            operation.expire()
            return True
        count = 0
        for waiters in watch_lists:
            waiters.add(operation)
            self._lists.add(waiters)
            count += 1
        operation.watched = count
        self.watched += count
        self.delayed += 1
        self._expire_in(timeout_ms, operation)
        return False

    def watch(self, operation: DelayedOperation, waiters: Waiters, timeout_ms: float) -> None:
        """Let an operation wait that depends on one list only. The caller has just checked that it cannot complete yet."""
        if self._dead > self.purge_interval:
            self.purge()
        if timeout_ms <= 0:
            operation.expire()
            return
        waiters.add(operation)
        self._lists.add(waiters)
        operation.watched = 1
        self.watched += 1
        self.delayed += 1
        self._expire_in(timeout_ms, operation)

    def wait(self, operation: DelayedOperation, watched: int, timeout_ms: float) -> None:
        """Let an operation wait for its time limit only. Other waiters represent it in `watched` watch lists."""
        if self._dead > self.purge_interval:
            self.purge()
        operation.watched = watched
        self.watched += watched
        self.delayed += 1
        self._expire_in(timeout_ms, operation)

    def will_purge(self, waiters: Waiters) -> None:
        """Include the list in the next purge, because a waiter was added that may stay in it after completion."""
        self._lists.add(waiters)

    def later(self, after_ms: float, callback: Callable[[], object]) -> None:
        """Call back later, for an operation that waits for more than an event."""
        self._timing_wheel.add(after_ms, callback)

    def _expire_in(self, timeout_ms: float, operation: DelayedOperation) -> None:
        operation._purgatory = self
        deadlines = self._deadlines.get(timeout_ms)
        if deadlines is None:
            deadlines = self._deadlines_of(timeout_ms)
        if deadlines is None:
            operation._timer = self._timing_wheel.add(timeout_ms, operation.expire)
        else:
            deadlines.add(operation)

    def _deadlines_of(self, timeout_ms: float) -> Deadlines | None:
        """A new queue for a timeout, unless there are too many."""
        known = self._deadlines
        if len(known) >= MAX_TIMEOUTS:
            for other in [other for other, deadlines in known.items() if deadlines.is_idle]:
                del known[other]
        if len(known) >= MAX_TIMEOUTS:
            return None
        deadlines = known[timeout_ms] = Deadlines(self._timing_wheel, timeout_ms)
        return deadlines

    def _on_finished(self, operation: DelayedOperation) -> None:
        """Called by a waiting operation that completed or was cancelled."""
        self.delayed -= 1
        self.watched -= operation.watched
        self._dead += 1

    def purge(self) -> None:
        """Remove completed operations from all watch lists."""
        self._dead = 0
        live = set()
        for waiters in self._lists:
            waiters.waiting = {waiter: None for waiter in waiters.waiting if not waiter.completed}
            if waiters.waiting:
                live.add(waiters)
        self._lists = live
