"""Who waits for a partition to move on.

A partition owns one `Waiters` and notifies it after its high watermark, log end offset or leadership moved. What waits
(a delayed Produce, Fetch or DeleteRecords of the broker floor) decides itself whether it can complete; a completed waiter
leaves the list at the next notification, so completing it elsewhere (a timeout) costs nothing here.
"""

from typing import Protocol


class Waiter(Protocol):
    """An operation that waits for partitions."""

    @property
    def completed(self) -> bool:
        """Whether it waits no more."""

    def try_complete(self) -> bool:
        """Complete if what it waits for has come; True when it is (or already was) complete."""


class Waiters:
    """The operations that wait for one partition. Empty most of the time, so `notify` of an empty list must cost nothing."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Waiter] = []

    def add(self, waiter: Waiter) -> None:
        """Wait; drops those that completed elsewhere first when the list has grown, so that it stays bounded by what is pending."""
        if len(self.waiting) >= 64:
            self.waiting = [w for w in self.waiting if not w.completed]
        self.waiting.append(waiter)

    def drop(self, waiter: Waiter) -> None:
        """One that is `completed` waits no more; a list that is being walked drops it later."""
        if waiter in self.waiting:
            self.waiting.remove(waiter)

    def notify(self) -> None:
        """Let every waiter look again. A waiter may add waiters while it completes."""
        waiting = self.waiting
        if not waiting:
            return
        self.waiting = []
        still = [w for w in waiting if not w.completed and not w.try_complete()]
        self.waiting = still + self.waiting if self.waiting else still
