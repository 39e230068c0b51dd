"""Counts the transactions that end on this coordinator, and measures the time of each in each state."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.transactions.metadata import TransactionMetadata, TransactionState


class TransactionStats:
    """See the module. `on_left` is called for every change of state, with the former state and the time in it, ms."""

    __slots__ = ("aborts", "commits", "on_left", "timeouts")

    def __init__(self) -> None:
        self.commits = 0
        self.aborts = 0
        """All of them: of producers, of their next instances, and of timeouts."""
        self.timeouts = 0
        """Aborts that began because a transaction was open for longer than its producer allowed."""
        self.on_left: Callable[[TransactionState, int], None] | None = None

    def count(self, txn: TransactionMetadata, former: TransactionState, since_ms: int, now_ms: int) -> None:
        """A transition of the id is stored. The former state began at `since_ms`, or was only updated."""
        state = txn.state
        if state is former:
            return
        if state is TransactionState.COMPLETE_COMMIT:
            self.commits += 1
        elif state is TransactionState.COMPLETE_ABORT:
            self.aborts += 1
        if self.on_left is not None:
            self.on_left(former, max(0, now_ms - since_ms))
