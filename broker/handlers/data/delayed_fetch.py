"""A Fetch that found less than the client wants: what it waits for in the purgatory, and when it looks again.

A follower's fetch is not answered in the very call that appended something, but at the end of the turn of the loop, or of the first turn
that brings nothing more: what other connections sent meanwhile goes into the same answer. Each answer costs the leader and the follower a
round of 100 µs, however much is in it; three loaded brokers need half as many so, and an idle one finds nothing more and answers at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.loop.purgatory import DelayedOperation
from broker.network.request_channel import Pending
from broker.request.turns import Steps
from storage.disk.clock import elapsed_ms

if TYPE_CHECKING:
    from broker.handlers.data.fetch_reading import Fetch

UNKNOWN_SIZE = -1
MOST_TURNS = 4
"""For how many turns of the loop an answer to a follower is held back while every one of them brings more."""
QUOTA_LOOK_MS = 10
"""How often a fetch from which the leader's quota kept something looks whether it may have it."""


class DelayedFetch(DelayedOperation):
    """A fetch that waits for more bytes, a change of leadership, or its time."""

    __slots__ = ("_ends", "_fetch", "_has_news", "_is_due", "_is_fresh", "_is_new", "_looks", "_pending", "_sizes", "_turns", "_waited")

    def __init__(self, fetch: Fetch, pending: Pending) -> None:
        super().__init__()
        self._fetch = fetch
        self._pending = pending
        self._is_fresh = False
        self._is_new = True
        self._is_due = False
        self._has_news = False
        self._looks = False
        self._turns = 0
        self._waited = fetch.waited
        self._ends: list[int] = []
        self._sizes: list[int] = []
        self._note()

    def _note(self) -> None:
        """How far the partitions are. The size of a log says how much was readable only where everything in it was.

        Where any byte will do, sizes do not matter.
        """
        params = self._fetch.params
        self._ends = [params.end_offset(partition) for partition, _ in self._waited]
        if self._fetch.min_bytes <= 1:
            return
        self._sizes = [
            partition.log.size_bytes if end_offset == partition.log.log_end_offset else UNKNOWN_SIZE
            for (partition, _), end_offset in zip(self._waited, self._ends, strict=True)
        ]

    def try_complete(self) -> bool:
        """Complete when a partition changed hands, or enough may be read."""
        if self._is_new:
            self._is_new = False
            return False  # it was read in this very turn
        if self._is_due:
            self._has_news = True
            self._is_fresh = False
            return False
        fetch = self._fetch
        if fetch.is_large and fetch.params.replica_id >= 0:
            self.gather()  # to look at thousands of partitions whenever one of them moves would take longer than to answer
            return False
        if not self._has_moved():
            return False
        if self.completed:
            return True
        if fetch.params.replica_id >= 0:
            self.gather()
            return False
        return self._read_and_answer()

    def _has_moved(self) -> bool:
        """Whether it is worth while to read again; one for a partition that changed hands is complete then.

        The growth of the logs says it; where it is unknown, every move of the end does.
        """
        fetch = self._fetch
        params = fetch.params
        sizes = self._sizes
        grown = fetch.size
        moved = False
        is_follower = params.replica_id >= 0
        for i, (partition, asked) in enumerate(self._waited):
            if not (partition.is_leader or (params.or_follower and partition.is_online)):
                return self.force_complete()
            if asked.leader_epoch not in (-1, partition.leader_epoch):
                return self.force_complete()
            # A follower may have a thousand partitions, so this asks no more of each than it must.
            if (partition.log.log_end_offset if is_follower else params.end_offset(partition)) != self._ends[i]:
                moved = True
                if not sizes:
                    grown = fetch.min_bytes
                    continue
                growth = partition.log.size_bytes - sizes[i]
                # a log that shrank lost old segments meanwhile
                grown += growth if sizes[i] != UNKNOWN_SIZE and growth > 0 else fetch.min_bytes
        return moved and grown >= fetch.min_bytes

    def _read_and_answer(self) -> bool:
        """Answer if there is enough; else wait on. What grew may be out of reach all the same: a quota, a later leader epoch."""
        fetch = self._fetch
        if not self._is_fresh:
            fetch.read(elapsed_ms(fetch.context.broker.clock), is_first_read=False)
        if fetch.must_answer_now():
            self._is_fresh = True
            return self.force_complete()
        self._note()
        self.maybe_wait_for_quota()
        return False

    def maybe_wait_for_quota(self) -> None:
        """Look again soon if something was withheld: nothing need happen to the partition before it may be sent."""
        fetch = self._fetch
        if fetch.params.is_withheld and not self._looks:
            self._looks = True
            fetch.context.broker.fetch_purgatory.later(QUOTA_LOOK_MS, self._on_quota_look)

    def _on_quota_look(self) -> None:
        self._looks = False
        if self.completed:
            return
        fetch = self._fetch
        quota = fetch.context.broker.replica_manager.leader_quota
        if self._is_due or (quota is not None and quota.is_limited and not quota.is_open_to(fetch.params.replica_id)):
            self.maybe_wait_for_quota()
        else:
            self._is_fresh = False
            self._read_and_answer()

    def gather(self, *, was_read: bool = False) -> None:
        """Answer at the end of this turn of the loop, or of the next ones as long as they bring more."""
        self._is_due = True
        self._is_fresh = was_read
        self._has_news = not was_read
        self._turns = 0
        asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        if self.completed:
            return
        self._turns += 1
        if self._has_news and self._turns < MOST_TURNS:
            self._has_news = False
            asyncio.get_running_loop().call_soon(self._on_turn)
            return
        self._is_due = False
        fetch = self._fetch
        if not fetch.is_large or fetch.params.is_withheld:
            self._read_and_answer()
        elif self._has_moved():
            self.force_complete()  # it is read in steps

    def on_expiration(self) -> None:
        """Count it where it was a follower's; the purgatory counts all."""
        if self._fetch.params.replica_id >= 0:
            self._fetch.context.broker.replica_manager.topic_stats.follower_fetch_expirations += 1

    def on_complete(self) -> None:
        """Answer with what is there now."""
        fetch = self._fetch
        if fetch.is_large:
            fetch.context.broker.turns.go_on(self._answer_steps(), self._pending)
            return
        now_ms = elapsed_ms(fetch.context.broker.clock)
        if not self._is_fresh:
            fetch.read(now_ms, is_first_read=False)
        self._pending.complete(fetch.context.encode(fetch.response(now_ms)))

    def _answer_steps(self) -> Steps[None]:
        fetch = self._fetch
        now_ms = elapsed_ms(fetch.context.broker.clock)
        if not self._is_fresh:
            yield from fetch.read_steps(now_ms, may_wait=True)
        self._pending.complete((yield from fetch.context.encode_steps((yield from fetch.response_steps(now_ms)))))


def wait_for_more(fetch: Fetch, *, has_enough: bool = False) -> Pending:
    """Park a fetch in the purgatory; the connection's end cancels it. One that `has_enough` is answered when this turn brings no more."""
    pending = Pending()
    operation = DelayedFetch(fetch, pending)
    pending.on_closed = operation.cancel
    fetch.context.broker.fetch_purgatory.try_complete_else_watch(
        operation, [partition.waiters for partition, _ in fetch.waited], fetch.max_wait_ms
    )
    if has_enough:
        operation.gather(was_read=True)
    elif not operation.completed:
        operation.maybe_wait_for_quota()
    return pending
