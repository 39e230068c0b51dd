"""Notifies operations that wait for a partition to change.

A partition has `Waiters` for the log end offset, the high watermark and the last stable offset, and notifies those whose offset has moved.
After other changes, as of leadership, it notifies all. A waiting operation (a
delayed Produce, Fetch or DeleteRecords of the broker floor) decides itself whether it can complete. A completed waiter is removed at the
next notification, so completing it elsewhere (a timeout) costs nothing here.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol, final

logger = logging.getLogger(__name__)

SWEPT_FROM: Final = 64


class Waiter(Protocol):
    """An operation that waits for partitions."""

    @property
    def completed(self) -> bool:
        """Whether it has completed."""

    def try_complete(self) -> bool:
        """Complete if that is possible. Returns whether it is complete."""


@final
class Waiters:
    """The operations that wait for one offset of a partition. Usually none, and then `notify` must cost nothing."""

    __slots__ = ("_sweep_at", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Waiter, None] = {}
        """In the order of waiting. A dict, because thousands of consumers may leave a partition at once, and `drop` of each would search a
        list."""
        self._sweep_at = SWEPT_FROM
        """Number of operations at which completed operations are removed."""

    def add(self, waiter: Waiter) -> None:
        """Add an operation. Removes completed ones once their number has doubled, so that it stays limited by the pending ones.

        Not at every call: thousands of consumers may wait for one partition, and each would look at all others.
        """
        if len(self.waiting) >= self._sweep_at:
            self.waiting = {w: None for w in self.waiting if not w.completed}
            self._sweep_at = max(SWEPT_FROM, 2 * len(self.waiting))
        self.waiting[waiter] = None

    def drop(self, waiter: Waiter) -> None:
        """Remove a `completed` operation. A notification in progress removes it later."""
        self.waiting.pop(waiter, None)
        if not self.waiting:
            self.waiting = {}  # a dict does not give memory back when its keys are removed

    def notify(self) -> None:
        """Let every waiter check again. A waiter may add waiters while it completes."""
        if self.waiting:
            self.notify_while(None)

    def notify_while(self, goes_on: Callable[[], bool] | None) -> None:
        """Let waiters check again, one after the other, as long as `goes_on` is true before each. The others keep their order."""
        waiting = self.waiting
        self.waiting = {}
        still: dict[Waiter, None] = {}
        left = iter(waiting)
        while True:
            try:
                for waiter in left:
                    if waiter.completed:
                        continue
                    if goes_on is not None and not goes_on():
                        still[waiter] = None
                        still.update(dict.fromkeys(left))
                    elif not waiter.try_complete():
                        still[waiter] = None
                break
            except Exception:  # a fault of this broker: the others would wait until their timeouts
                logger.exception("a waiting request failed; the others go on")
        if self.waiting:
            still.update(self.waiting)
        self.waiting = still
        self._sweep_at = SWEPT_FROM
