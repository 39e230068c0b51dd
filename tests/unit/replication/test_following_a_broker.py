"""A follower and a real leader in one process: what is produced there is here, byte for byte."""

import asyncio

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.schema.message import Message
from ottla.replication.follower.fetcher import BRIEF_MS, BRIEF_SECONDS
from tests.support.batches import a_batch
from tests.support.followers import DirectPeer, Follower, LeadingBroker, until
from tests.support.logs import read_all
from tests.support.replicas import state
from tests.support.virtual_time import in_virtual_time


@in_virtual_time
async def test_what_is_produced_reaches_the_follower_and_the_high_watermark_follows() -> None:
    leader = LeadingBroker()
    leader.bench.know(p0=0)
    leader.bench.replicas.say(state(0, 1, isr=(0, 1), replicas=(0, 1)))
    follower = Follower(leader.peer())
    follower.follow()
    produced = leader.bench.produce(a_batch(3))
    assert produced.waits

    await until(lambda: not produced.waits)
    assert produced.produced[0].error_code == 0
    await until(lambda: follower.log().high_watermark == 3)

    assert read_all(follower.log()) == read_all(leader.bench.replicas.partition.log)
    assert follower.log().leader_epochs.entries == [(1, 0)]
    await follower.pool.close()


@in_virtual_time
async def test_an_idle_follower_asks_twice_a_second_and_no_more() -> None:
    leader = LeadingBroker()
    leader.bench.know(p0=0)
    leader.bench.replicas.say(state(0, 1, isr=(0, 1), replicas=(0, 1)))
    follower = Follower(leader.peer())
    follower.follow()
    await asyncio.sleep(10)

    assert 18 <= leader.requests <= 22
    await follower.pool.close()
    assert not follower.pool.fetchers


class NotedPeer(DirectPeer):
    """Notes how long each fetch may wait, which partitions were asked for, and how many fetches were interrupted."""

    def __init__(self, leader: LeadingBroker) -> None:
        super().__init__(leader)
        self.waits_ms: list[int] = []
        self.asked: set[int] = set()
        self.interrupted = 0

    async def request(self, api_key: ApiKey, version: int, request: Message, *, timeout_ms: int) -> Message:
        assert isinstance(request, FetchRequest)
        self.waits_ms.append(request.max_wait_ms)
        self.asked.update(partition.partition for topic in request.topics for partition in topic.partitions)
        try:
            return await super().request(api_key, version, request, timeout_ms=timeout_ms)
        except asyncio.CancelledError:
            self.interrupted += 1
            raise


@in_virtual_time
async def test_partitions_that_are_added_one_after_the_other_interrupt_a_single_fetch() -> None:
    leader = LeadingBroker()
    leader.bench.know(**{f"p{index}": 0 for index in range(10)})
    leader.bench.replicas.say(*(state(0, 1, index=index, isr=(0, 1), replicas=(0, 1)) for index in range(10)))
    peer = NotedPeer(leader)
    follower = Follower(peer)
    for index in range(10):
        follower.follow(index)
        await asyncio.sleep(0.1)
        assert index in peer.asked
        await asyncio.sleep(BRIEF_SECONDS / 4)

    assert peer.interrupted == 1
    assert peer.waits_ms[-1] == BRIEF_MS
    await asyncio.sleep(2 * BRIEF_SECONDS)
    assert peer.waits_ms[-1] == 500
    await follower.pool.close()
