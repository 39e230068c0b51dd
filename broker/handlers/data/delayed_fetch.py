"""Completes a Fetch that is not answered at once: it waits for records, gathers, runs in turns, or waits for threads that read or convert.

A fetch that found less than `min_bytes` waits in the purgatory: until there is enough, a partition changes its leader, or the time is up. A
follower's fetch is not answered within the call that appends records. It is answered at the end of the turn of the loop, or of the first
turn without new records. So records that arrive meanwhile by other connections go into the same answer. The same holds for a fetch whose
own progress caused the append. Each answer costs the leader and the follower a round of 100 µs, whatever its size. In this way three loaded
brokers need half as many answers; an idle broker finds no new records and answers at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import final

from ottla.broker.handlers.data.cold_reads import until_cached
from ottla.broker.handlers.data.fetch_conversion import convert_first_batches
from ottla.broker.handlers.data.fetch_reading import Fetch
from ottla.broker.handlers.data.fetch_stages import ANSWERED, CONVERTING, GATHERING, PARTITIONS_PER_STEP, WAITING
from ottla.broker.network.request_channel import CLOSE, Completion, Pending
from ottla.broker.request.malformed import refuse
from ottla.pauses import is_over, pause
from ottla.protocol.schema.wire import ProtocolError
from ottla.replication.waiting.purgatory import DelayedOperation
from ottla.storage.segment.cold_lookups import ColdRead

logger = logging.getLogger(__name__)

MOST_TURNS = 4
"""Turns of the loop for which an answer to a follower is delayed while every turn brings new records."""
QUOTA_LOOK_MS = 10
"""Time after which a fetch checks again whether the leader's quota allows the records that it withheld, ms."""


def let_wait(fetch: Fetch, cold: ColdRead | None) -> Pending:
    """Let a fetch wait or continue later, or let threads read the pages that were not in the page cache."""
    pending = Pending()
    delayed = DelayedFetch(fetch, pending)
    if cold is not None:
        delayed.read_cold(cold)
    else:
        delayed.go_on()
    return pending


@final
class DelayedFetch(DelayedOperation):
    """See the module. Runs on the event loop, and does nothing after the client has disconnected."""

    __slots__ = ("_fetch", "_has_left", "_is_parked", "_is_running", "_looks_for_quota", "_pending", "_task", "_turns")

    def __init__(self, fetch: Fetch, pending: Pending) -> None:
        super().__init__()
        self._fetch = fetch
        self._pending = pending
        self._has_left = False
        """Whether the client has left."""
        self._is_running = False
        """Whether the fetch runs in turns, or a thread reads for it."""
        self._is_parked = False
        """Whether it is in the purgatory."""
        self._looks_for_quota = False
        self._turns = 0
        self._task: asyncio.Task[None] | None = None
        fetch.delayed = self
        pending.on_closed = self.cancel

    # -- running -----------------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Run the fetch now, and in later turns if it takes long."""
        self._is_running = True
        try:
            while not self._has_left and not self._fetch.run(PARTITIONS_PER_STEP):
                if is_over():
                    self._fetch.keep()
                    self._fetch.services.running.begin(self.work(), self._pending)
                    return
            self._is_running = False
            self._follow_up()
        except Exception as error:
            self._on_error(error)

    async def work(self) -> Pending:
        """Run the fetch, with pauses, until it has to wait or is complete, and do what its stage requires."""
        self._is_running = True
        try:
            await self._run()
            self._is_running = False
            self._follow_up()
        except Exception as error:
            self._on_error(error)
        return self._pending

    async def _run(self) -> None:
        while not self._has_left and not self._fetch.run(PARTITIONS_PER_STEP):
            await pause()

    def read_cold(self, cold: ColdRead) -> None:
        """Read missing pages in threads, and answer then. Apache Kafka, too, answers a fetch from an old segment without a wait."""
        self._is_running = True
        self._task = asyncio.get_running_loop().create_task(self._answer_when_cached(cold))

    async def _answer_when_cached(self, cold: ColdRead) -> None:
        try:
            await until_cached(self._fetch.services, cold, self._read_again)
            self._is_running = False
            self._follow_up()
        except Exception:
            self._fail()

    async def _read_again(self, may_wait: bool) -> None:
        self._fetch.read_again(answers_anyway=True, may_wait=may_wait)
        await self._run()

    async def _convert(self) -> None:
        """Have threads convert the first batch of each partition for an old client, then answer."""
        try:
            await convert_first_batches(self._fetch)
        except Exception:
            self._fail()
            return
        self._is_running = False
        if not self._has_left:
            self.go_on()

    def _follow_up(self) -> None:
        fetch = self._fetch
        self._pending.in_turns = False
        if self._has_left:
            return
        if fetch.stage == ANSWERED:
            self._complete(fetch.parts)
        elif fetch.stage == CONVERTING:
            self._is_running = True
            self._task = asyncio.get_running_loop().create_task(self._convert())
        elif self.completed:
            self._look(True)  # it expired meanwhile
        elif fetch.stage == GATHERING:
            self._gather()
        else:
            if not self._is_parked:
                self._is_parked = True
                fetch.purgatory.wait(self, fetch.watched, fetch.max_wait_ms)
            if fetch.has_moved:
                self.on_enough()
            else:
                self._maybe_wait_for_quota()

    def _look(self, answers_anyway: bool = False) -> None:
        """Read again, unless a reading is in progress."""
        if not self._is_running:
            self._fetch.read_again(answers_anyway=answers_anyway)
            self.go_on()

    # -- waiting -----------------------------------------------------------------------------------------------------------

    def try_complete(self) -> bool:
        """See DelayedOperation. Its SessionPartitions are in watch lists on its behalf."""
        return self.completed

    def on_enough(self) -> None:
        """Read again, or gather: there may be enough records now."""
        if self._fetch.params.replica_id >= 0:
            self._fetch.stage = GATHERING
            self._gather(True)
        else:
            self._look()

    def _gather(self, has_moved: bool = False) -> None:
        """Answer at the end of this turn of the loop, or of the first turn after it that brings no new records."""
        self._fetch.has_moved = has_moved
        self._turns = 0
        asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        fetch = self._fetch
        if self.completed or fetch.stage != GATHERING:
            return
        self._turns += 1
        if fetch.has_moved and self._turns < MOST_TURNS:
            fetch.has_moved = False
            asyncio.get_running_loop().call_soon(self._on_turn)
            return
        self._look()

    def _maybe_wait_for_quota(self) -> None:
        """Check again soon if the quota withheld records: it may allow them later, without any event of the partition."""
        fetch = self._fetch
        if fetch.params.is_withheld and not self._looks_for_quota:
            self._looks_for_quota = True
            fetch.services.data.fetch_purgatory.later(QUOTA_LOOK_MS, self._on_quota_look)

    def _on_quota_look(self) -> None:
        self._looks_for_quota = False
        fetch = self._fetch
        if self.completed or fetch.stage != WAITING:
            return
        quota = fetch.services.data.replica_manager.leader_quota
        if quota is not None and quota.is_limited and not quota.is_open_to(fetch.params.replica_id):
            self._maybe_wait_for_quota()
        else:
            self._look()

    # -- the end -----------------------------------------------------------------------------------------------------------

    def on_given_up(self) -> None:
        """Answer with the partitions that are written already."""
        if not self._is_running:
            self.go_on()

    def on_expiration(self) -> None:
        """Count the expiration of a follower's fetch; the purgatory counts those of all fetches."""
        if self._fetch.params.replica_id >= 0:
            self._fetch.services.data.replica_manager.topic_stats.follower_fetch_expirations += 1

    def on_complete(self) -> None:
        """Answer at the timeout with the records that are there now."""
        self._look(True)

    def cancel(self) -> None:
        """See DelayedOperation."""
        self._finish()
        self._has_left = True
        if self._task is not None and self._fetch.stage == CONVERTING:
            self._task.cancel()  # it may wait for memory
        self._fetch.abandon()
        self._fetch.delayed = None

    def _complete(self, answer: Completion) -> None:
        self._finish()
        self._fetch.delayed = None  # otherwise only the garbage collector could free the two
        self._pending.complete(answer)

    def _on_error(self, error: Exception) -> None:
        """Called in an except block."""
        if isinstance(error, ColdRead):
            self.read_cold(error)
        elif isinstance(error, ProtocolError):
            self._complete(refuse(f"FETCH v{self._fetch.version}", self._fetch.connection, error))
        else:
            self._fail()

    def _fail(self) -> None:
        """Close this connection, and no other, after a bug of the broker. Called in an except block."""
        logger.exception("unexpected error in a Fetch; closing %s", self._fetch.connection.client.connection_id)
        self._fetch.abandon()
        self._complete(CLOSE)
