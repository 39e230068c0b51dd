"""Where requests wait for an event or their time: acks=all Produce, long-poll Fetch, DeleteRecords, group joins.

A handler makes a `DelayedOperation`, and the `Purgatory` lets it look at once; if it cannot complete it is added to the `Waiters` of the
partitions (or whatever moves) it depends on, and to the timing wheel. Whichever comes first completes it, exactly once. It holds no handler
slot meanwhile.

A watch list drops an operation at its next notification, so one that completed by time, or through another partition, may stay in the lists
of quiet partitions. Every `purge_interval` such operations the purgatory sweeps them out (fetch.purgatory.purge.interval.requests and its
like), so what is dead stays bounded, as in Apache Kafka.
"""

from collections.abc import Callable, Iterable
from typing import Final

from broker.loop.deadlines import Deadlines
from broker.loop.timing_wheel import TimerTask, TimingWheel
from replication.ports.waiters import Waiters

MAX_TIMEOUTS: Final = 16
"""How many timeouts have a queue of their own; an operation with yet another one has a timer."""


class DelayedOperation:
    """Something that completes once: when `try_complete` finds its condition true, or when its time is up."""

    __slots__ = ("_purgatory", "_timer", "completed", "deadline_ms", "watched")

    def __init__(self) -> None:
        self.completed = False
        self.watched = 0  # watch lists it stands in while it waits
        self.deadline_ms = 0  # for the queue of its timeout
        self._timer: TimerTask | None = None
        self._purgatory: Purgatory | None = None

    def try_complete(self) -> bool:
        """Look at the condition and `force_complete` if it holds; True when the operation is complete."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Do what was delayed: answer. Called once."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """The time is up; called before `on_complete`, which then answers with what there is."""

    def force_complete(self) -> bool:
        """Complete now. False when it was complete already."""
        if not self._finish():
            return False
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Nobody waits any more (the connection is gone): neither answer nor expire."""
        self._finish()

    def expire(self) -> None:
        """The time is up."""
        if not self.completed:
            if self._purgatory is not None:
                self._purgatory.expirations += 1
            self.on_expiration()
            self.force_complete()

    def park(self, purgatory: "Purgatory", timer: TimerTask | None) -> None:
        """For the purgatory: it waits there now, until its time is up, of which a queue thinks if not `timer`."""
        self._purgatory = purgatory
        self._timer = timer

    def _finish(self) -> bool:
        if self.completed:
            return False
        self.completed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._purgatory is not None:
            self._purgatory.on_finished(self)
            self._purgatory = None
        return True


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
        self._lists: set[Waiters] = set()  # those that something was added to since the last sweep
        self._dead = 0  # operations that finished since the last sweep and may still stand in lists

    def try_complete_else_watch(self, operation: DelayedOperation, watch_lists: Iterable[Waiters], timeout_ms: float) -> bool:
        """True when the operation completed in this call (also because `timeout_ms` is not positive); else it waits."""
        if operation.completed or operation.try_complete():
            return True
        # Here, and not when an operation finishes: that happens while a list is walked.
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
        """Let one operation wait that cannot complete yet, as its maker has just seen, and depends on one thing alone."""
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
        """Let one operation wait for its time, and for waiters that stand in that many watch lists in its place."""
        if self._dead > self.purge_interval:
            self.purge()
        operation.watched = watched
        self.watched += watched
        self.delayed += 1
        self._expire_in(timeout_ms, operation)

    def will_purge(self, waiters: Waiters) -> None:
        """The next purge is to look there: a waiter was added that may stay when it is completed."""
        self._lists.add(waiters)

    def later(self, after_ms: float, callback: Callable[[], object]) -> None:
        """Call back for an operation that does not wait for an event alone."""
        self._timing_wheel.add(after_ms, callback)

    def _expire_in(self, timeout_ms: float, operation: DelayedOperation) -> None:
        deadlines = self._deadlines.get(timeout_ms)
        if deadlines is None:
            deadlines = self._deadlines_of(timeout_ms)
            if deadlines is None:
                operation.park(self, self._timing_wheel.add(timeout_ms, operation.expire))
                return
        operation.park(self, None)
        deadlines.add(operation)

    def _deadlines_of(self, timeout_ms: float) -> Deadlines | None:
        """A queue for a timeout that has none, if there are not too many."""
        known = self._deadlines
        if len(known) >= MAX_TIMEOUTS:
            for other in [other for other, deadlines in known.items() if deadlines.is_idle]:
                del known[other]
        if len(known) >= MAX_TIMEOUTS:
            return None
        deadlines = known[timeout_ms] = Deadlines(self._timing_wheel, timeout_ms)
        return deadlines

    def on_finished(self, operation: DelayedOperation) -> None:
        """For operations: one that waited is complete or cancelled."""
        self.delayed -= 1
        self.watched -= operation.watched
        self._dead += 1

    def purge(self) -> None:
        """Drop what is complete from all watch lists."""
        self._dead = 0
        live = set()
        for waiters in self._lists:
            waiters.waiting = [waiter for waiter in waiters.waiting if not waiter.completed]
            if waiters.waiting:
                live.add(waiters)
        self._lists = live
