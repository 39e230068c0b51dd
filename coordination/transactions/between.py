"""Delays requests that begin a transaction until the markers of the previous one are written.

Apache Kafka refuses them with CONCURRENT_TRANSACTIONS, and clients retry after a pause of 20 ms or more. Markers are usually written within
one or two milliseconds, so the request waits here, for MOST_MS at most. Then it is answered like any other. In version 2 a request also
waits for the record of another one that adds partitions to the same transaction. A connection is not read while its request waits, so the
number of connections bounds these requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.coordination.transactions.metadata import TransactionMetadata
from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel

MOST_MS: Final = 100
"""How long a request waits. Markers that take longer wait for an election, or for a broker that is away."""


class Between:
    """See the module. Owned by the coordinator."""

    __slots__ = ("_timing_wheel", "_waiting")

    def __init__(self, timing_wheel: TimingWheel) -> None:
        self._timing_wheel = timing_wheel
        self._waiting: dict[TransactionMetadata, tuple[TimerTask, list[Callable[[], None]]]] = {}

    def wait(self, txn: TransactionMetadata, then: Callable[[], None]) -> None:
        """Call `then` when the transaction has ended or has more partitions, or has another coordinator, or after MOST_MS."""
        waiting = self._waiting.get(txn)
        if waiting is None:
            waiting = self._waiting[txn] = self._timing_wheel.add(MOST_MS, partial(self.end, txn)), []
        waiting[1].append(then)

    def end(self, txn: TransactionMetadata) -> None:
        """Continue the requests that wait for the transaction, in the next turn of the event loop.

        The end may be stored while the waiters of the log are notified. Those that were asked before would not see an append of that turn.
        """
        waiting = self._waiting.pop(txn, None)
        if waiting is not None:
            timer, requests = waiting
            timer.cancel()
            loop = asyncio.get_running_loop()
            for then in requests:
                loop.call_soon(then)

    def end_lost(self, is_lost: Callable[[TransactionMetadata], bool]) -> None:
        """Continue the requests that wait for transactions that another broker coordinates now."""
        for txn in [txn for txn in self._waiting if is_lost(txn)]:
            self.end(txn)
