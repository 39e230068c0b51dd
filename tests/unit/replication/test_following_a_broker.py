"""A follower and a real leader in one process: what is produced there is here, byte for byte."""

import asyncio

from tests.support.batches import a_batch
from tests.support.followers import Follower, LeadingBroker, until
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
