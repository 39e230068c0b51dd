"""Notifies operations that wait for a partition to change.

A partition owns one `Waiters` and notifies it after its high watermark, log end offset or leadership changed. A waiting operation (a
delayed Produce, Fetch or DeleteRecords of the broker floor) decides itself whether it can complete. A completed waiter leaves the list at
the next notification, so completing it elsewhere (a timeout) costs nothing here.
"""

import logging
from typing import Final, Protocol

logger = logging.getLogger(__name__)

SWEPT_FROM: Final = 64


class Waiter(Protocol):
    """An operation that waits for partitions."""

    @property
    def completed(self) -> bool:
        """Whether it has completed."""

    def try_complete(self) -> bool:
        """Complete if that is possible. Returns whether it is complete."""


class Waiters:
    """The operations that wait for one partition. Usually empty, so `notify` of an empty list must cost nothing."""

    __slots__ = ("_sweep_at", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Waiter] = []
        self._sweep_at = SWEPT_FROM
        """Length at which completed operations are removed."""

    def add(self, waiter: Waiter) -> None:
        """Add an operation. Removes completed ones once the list has doubled, so that its length stays limited by the pending ones.

        Not at every call: thousands of consumers may wait for one partition, and each would look at all others.
        """
        if len(self.waiting) >= self._sweep_at:
            self.waiting = [w for w in self.waiting if not w.completed]
            self._sweep_at = max(SWEPT_FROM, 2 * len(self.waiting))
        self.waiting.append(waiter)

    def drop(self, waiter: Waiter) -> None:
        """Remove a `completed` operation. A notification in progress removes it later."""
        if waiter in self.waiting:
            self.waiting.remove(waiter)

    def notify(self) -> None:
        """Let every waiter check again. A waiter may add waiters while it completes."""
        waiting = self.waiting
        if not waiting:
            return
        self.waiting = []
        still: list[Waiter] = []
        left = iter(waiting)
        while True:
            try:
                for waiter in left:
                    if waiter.completed or waiter.try_complete():
                        continue
                    still.append(waiter)
                break
            except Exception:  # a fault of this broker: the others would wait until their timeouts
                logger.exception("a waiting request failed; the others go on")
        self.waiting = still + self.waiting if self.waiting else still
        self._sweep_at = SWEPT_FROM
