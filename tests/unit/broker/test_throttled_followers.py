"""Two replicas that a move adds, behind a leader whose quota is less than either could take: who gets what, and how soon."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.config.topic import LEADER_REPLICATION_THROTTLED_REPLICAS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.replication.ports.throttle import ReplicationQuota
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.replicas import TOPIC_ID, state

PARTITIONS = 4
ANSWER_BYTES = 1000
"""What a partition gives at once, more or less."""
LIMIT = 2000
STEP_MS = 20


class Follower:
    """Fetches all partitions, `pause_ms` after each answer, and goes on where that ended."""

    def __init__(self, bench: HandlerBench, broker_id: int, pause_ms: int = 0, starts_ms: int = 0, max_wait_ms: int = 500) -> None:
        self.broker_id = broker_id
        self.bytes = 0
        self.offsets = [0] * PARTITIONS
        self.longest_ms = 0
        self._bench = bench
        self._pause_ms = pause_ms
        self._asks_at = starts_ms
        self._max_wait_ms = max_wait_ms
        self._waiting: Asking | None = None
        self._last_ms = 0

    def look(self, now_ms: int) -> None:
        if self._waiting is not None and not self._waiting.waits:
            self._take(self._waiting, now_ms)
            self._waiting = None
            self._asks_at = now_ms + self._pause_ms
        if self._waiting is None and now_ms >= self._asks_at:
            self._waiting = self.ask()

    def ask(self, min_bytes: int = 1) -> Asking:
        partitions = [
            FetchPartition(
                partition=i, fetch_offset=offset, current_leader_epoch=0, last_fetched_epoch=-1, partition_max_bytes=ANSWER_BYTES
            )
            for i, offset in enumerate(self.offsets)
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.broker_id, replica_epoch=-1),
            max_wait_ms=self._max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=10 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)],
        )
        return self._bench.ask(request, ApiKey.FETCH, 17)

    def _take(self, answer: Asking, now_ms: int) -> None:
        for each in answer.fetched:
            if each.records:
                self.bytes += len(each.records)
                self.offsets[each.partition_index] += 1
                self.longest_ms = max(self.longest_ms, now_ms - self._last_ms)
                self._last_ms = now_ms


def a_leader(limit: int = LIMIT) -> HandlerBench:
    """Leads partitions that broker 1 and 2 are far behind in."""
    bench = HandlerBench(leader_replication_throttled_replicas="*")
    bench.replicas.say(*(state(isr=[0], index=index) for index in range(PARTITIONS)))
    bench.know(**{f"p{index}": 0 for index in range(PARTITIONS)})
    for index in range(PARTITIONS):
        for _ in range(60):
            bench.replicas.append(12, index=index)
    quota = ReplicationQuota(0, LEADER_REPLICATION_THROTTLED_REPLICAS, bench.replicas.clock, 11, 1000)
    quota.set_limit(limit)
    bench.replicas.manager.leader_quota = quota
    return bench


async def let_pass(bench: HandlerBench, seconds: int, *looks: Callable[[int], None]) -> None:
    for now_ms in range(0, seconds * 1000, STEP_MS):
        for look in looks:
            look(now_ms)
        bench.replicas.clock.move(STEP_MS)
        bench.time.advance(STEP_MS)
        for _ in range(6):
            await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize(("starts_ms", "pause_ms"), [(0, 0), (20, 0), (240, 20), (480, 300)])
def test_two_followers_have_equal_parts_of_the_quota_whenever_they_ask(starts_ms: int, pause_ms: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = a_leader()
        first, second = Follower(bench, 1), Follower(bench, 2, pause_ms, starts_ms)
        await let_pass(bench, 40, first.look, second.look)
        assert first.bytes + second.bytes == pytest.approx(40 * LIMIT, rel=0.15)
        assert second.bytes == pytest.approx(first.bytes, rel=0.3)
        assert max(first.longest_ms, second.longest_ms) <= 5_000

    scenario()


@on_a_loop
async def test_what_a_follower_does_not_ask_for_goes_to_the_other() -> None:
    bench = a_leader()
    first, second = Follower(bench, 1), Follower(bench, 2)
    await let_pass(bench, 10, first.look, second.look)
    before = first.bytes
    await let_pass(bench, 20, first.look)
    assert first.bytes - before == pytest.approx(20 * LIMIT, rel=0.15)


@on_a_loop
async def test_a_follower_has_what_was_kept_from_it_as_soon_as_the_quota_allows_and_not_when_its_time_is_up() -> None:
    bench = a_leader()
    patient = Follower(bench, 1, max_wait_ms=30_000)
    await let_pass(bench, 20, patient.look)
    assert patient.bytes == pytest.approx(20 * LIMIT, rel=0.15)


@on_a_loop
async def test_what_is_read_twice_before_it_is_sent_counts_once() -> None:
    bench = a_leader(10_000_000)
    follower = Follower(bench, 1, max_wait_ms=100)
    quota = bench.replicas.manager.leader_quota
    assert quota is not None
    asking = follower.ask(min_bytes=1 << 20)
    assert asking.waits
    bench.time.advance(200)
    assert quota.rate() == sum(len(each.records or b"") for each in asking.fetched) > 0
