"""Fetches of followers in their sessions: when they are answered, with what, and what their leader learns."""

import asyncio
import random
from typing import Any

import pytest

from ottla.broker.handlers.data.delayed_fetch import MOST_TURNS
from ottla.protocol.errors import ErrorCode
from ottla.storage.disk.clock import elapsed_ms
from tests.support.examples import number_of
from tests.support.fetching_follower import Follower, told, turns
from tests.support.handler_bench import on_a_loop
from tests.support.replicas import LAG_MS, TOPIC, state
from tests.unit.broker.test_session_watch import session_of

PARTITIONS = 4


@on_a_loop
async def test_a_follower_that_has_everything_waits_and_is_told_only_of_what_came() -> None:
    follower = Follower()
    waiting = follower.fetch({})
    assert waiting.waits
    follower.replicas.append(1, index=2)
    await turns()
    assert not waiting.waits
    ((index, error, high_watermark, size),) = told(waiting)
    assert (index, error, high_watermark) == (2, 0, 0)
    assert size > 0


@on_a_loop
async def test_a_follower_at_the_end_is_told_of_a_high_watermark_that_moved_when_its_time_is_up() -> None:
    follower = Follower()
    follower.replicas.append(1, index=2)
    asking = follower.fetch({})
    await turns()
    assert told(asking)[0][:3] == (2, 0, 0)
    waiting = follower.fetch({2: 1})
    assert waiting.waits
    follower.bench.time.advance(600)
    assert told(waiting) == [(2, 0, 1, 0)]
    again = follower.fetch({})
    follower.bench.time.advance(600)
    assert told(again) == []


@on_a_loop
async def test_the_leader_hears_of_a_follower_that_has_everything() -> None:
    follower = Follower()
    partition = follower.replicas.partition
    follower.replicas.clock.move(LAG_MS)
    follower.fetch({}, max_wait_ms=0)
    assert partition.followers[1].last_caught_up_ms == elapsed_ms(follower.replicas.clock)
    follower.replicas.say(state(isr=[0], replicas=[0, 1], epoch=1, partition_epoch=1))
    follower.leader_epochs[0] = 1
    follower.fetch({0: 0}, max_wait_ms=0)
    assert [proposal.isr for proposal in follower.replicas.proposals.made] == [(0, 1)]


@on_a_loop
async def test_a_follower_in_another_epoch_is_told_so_when_the_turn_ends() -> None:
    follower = Follower()
    waiting = follower.fetch({})
    follower.replicas.say(state(isr=[0, 1], replicas=[0, 1], epoch=1, partition_epoch=1))
    await turns()
    assert told(waiting) == [(0, ErrorCode.FENCED_LEADER_EPOCH, -1, 0)]


@on_a_loop
async def test_a_follower_that_is_no_replica_any_more_is_told_so_at_once() -> None:
    follower = Follower()
    follower.replicas.say(state(isr=[0], replicas=[0, 2], epoch=1, partition_epoch=1))
    follower.leader_epochs[0] = 1
    assert told(follower.fetch({0: 0})) == [(0, ErrorCode.UNKNOWN_LEADER_EPOCH, -1, 0)]


@on_a_loop
async def test_more_than_a_byte_is_waited_for_over_all_partitions() -> None:
    follower = Follower()
    follower.replicas.append(1, index=0)
    asking = follower.fetch({})
    await turns()
    size = told(asking)[0][3]
    waiting = follower.fetch({0: 1}, min_bytes=size + 1)
    follower.replicas.append(1, index=1)
    await turns()
    assert waiting.waits
    follower.replicas.append(1, index=3)
    await turns()
    assert [index for index, _, _, length in told(waiting) if length] == [1, 3]


@on_a_loop
async def test_what_is_appended_in_one_turn_goes_into_one_answer() -> None:
    follower = Follower()
    waiting = follower.fetch({})
    follower.replicas.append(1, index=0)
    follower.replicas.append(2, index=3)
    assert waiting.waits
    await turns()
    assert [(index, error) for index, error, _, size in told(waiting) if size] == [(0, 0), (3, 0)]


@on_a_loop
async def test_an_answer_that_is_there_takes_along_what_comes_in_the_same_turn() -> None:
    follower = Follower()
    follower.replicas.append(1, index=0)
    waiting = follower.fetch({})
    assert waiting.waits
    follower.replicas.append(1, index=1)
    await turns()
    assert [index for index, _, _, size in told(waiting) if size] == [0, 1]


class AppendsBehind:
    """A coordinator: it appends its record when all replicas have those of a partition."""

    def __init__(self, follower: Follower) -> None:
        self.completed = False
        self._replicas = follower.replicas

    def try_complete(self) -> bool:
        if self._replicas.partition.log.high_watermark == 1 and not self.completed:
            self.completed = True
            self._replicas.append(1, index=3)
        return self.completed


@on_a_loop
async def test_what_is_appended_because_of_the_fetch_takes_along_what_comes_in_the_same_turn() -> None:
    follower = Follower()
    follower.replicas.append(1, index=0)
    asking = follower.fetch({})
    await turns()
    assert not asking.waits
    follower.replicas.partition.waiters.add(AppendsBehind(follower))
    waiting = follower.fetch({0: 1})
    assert waiting.waits
    follower.replicas.append(1, index=1)
    await turns()
    assert [index for index, _, _, size in told(waiting) if size] == [1, 3]


@on_a_loop
async def test_an_answer_leaves_after_a_few_turns_even_if_every_turn_brings_more() -> None:
    follower = Follower()
    waiting = follower.fetch({})
    for _ in range(MOST_TURNS + 1):
        follower.replicas.append(1, index=0)
        await turns(1)
    assert not waiting.waits


@on_a_loop
async def test_a_follower_that_reads_an_older_segment_is_answered_at_once() -> None:
    follower = Follower()
    log = follower.replicas.partition.log
    while log.size_bytes < 64 * 1024:
        follower.replicas.append(500, index=0)
    log.roll()
    assert not follower.fetch({}).waits


@on_a_loop
async def test_a_leader_that_is_deposed_before_the_turn_ends_says_so() -> None:
    follower = Follower()
    waiting = follower.fetch({})
    follower.replicas.append(1, index=0)
    follower.replicas.say(state(leader=1, isr=[0, 1], replicas=[0, 1], epoch=1, partition_epoch=1))
    await turns()
    assert [(index, error) for index, error, _, _ in told(waiting)] == [(0, ErrorCode.FENCED_LEADER_EPOCH)]


@on_a_loop
async def test_nothing_is_read_of_a_log_that_a_thread_still_truncates() -> None:
    follower = Follower()
    follower.replicas.append(1, index=0)
    log: Any = follower.replicas.partition.log
    waiting = follower.fetch({})
    log.truncations.current = "under way"
    await turns()
    asked = follower.fetch({})
    await turns()
    for asking in (waiting, asked):
        assert [(index, error) for index, error, _, _ in told(asking)] == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@on_a_loop
async def test_nothing_is_answered_on_a_connection_that_closed_before_the_turn_ended() -> None:
    follower = Follower()
    waiting = follower.fetch({})
    follower.replicas.append(1, index=0)
    assert waiting.pending.on_closed is not None
    waiting.pending.on_closed()
    await turns()
    assert waiting.waits
    assert follower.bench.services.data.fetch_purgatory.delayed == 0


def depose_and_elect(follower: Follower, index: int) -> None:
    """Broker 0 loses a partition and gets it back, in two epochs, of which the follower hears later."""
    epoch = follower.replicas.manager.partitions[TOPIC][index].leader_epoch
    for leader in (1, 0):
        epoch += 1
        follower.replicas.say(state(leader=leader, index=index, isr=[0, 1], replicas=[0, 1], epoch=epoch, partition_epoch=epoch))
    follower.leader_epochs[index] = epoch


def a_life(seed: int, *, looks_at_all: bool = False) -> list[object]:
    """What a follower is told while things happen, and what its leader knows of it afterwards."""

    async def live() -> list[object]:
        chance = random.Random(seed)
        follower = Follower()
        replicas = follower.replicas
        offsets = [0] * PARTITIONS
        history: list[object] = []
        wrong: set[int] = set()
        for _ in range(60):
            index = chance.randrange(PARTITIONS)
            match chance.randrange(8):
                case 0 | 1:
                    replicas.append(chance.randint(1, 3), index=index, acks=1)
                case 2:
                    replicas.clock.move(chance.choice([1, LAG_MS // 2, LAG_MS + 1]))
                    replicas.shrink()
                case 3 if replicas.proposals.undecided:
                    replicas.proposals.confirm()
                case 4 if chance.random() < 0.3:
                    follower.leader_epochs[index] += 1
                    epoch = follower.leader_epochs[index]
                    epoch_of_partition = max(epoch, replicas.manager.partitions[TOPIC][index].partition_epoch + 1)
                    replicas.say(state(index=index, isr=[0, 1], replicas=[0, 1], epoch=epoch, partition_epoch=epoch_of_partition))
                case 6:
                    log = replicas.manager.partitions[TOPIC][index].log
                    log.increment_log_start_offset(chance.randint(log.log_start_offset, log.high_watermark), "a test")
                case 7 if chance.random() < 0.2:
                    offsets[index] = chance.randint(0, offsets[index] + 1)
            changed = {index: offsets[index]} if chance.random() < 0.5 else {}
            if chance.random() < 0.8:
                changed |= {each: offsets[each] for each in wrong}
                wrong.clear()
            if looks_at_all:
                session_of(follower).look_at_all()
            asking = follower.fetch(changed, max_wait_ms=chance.choice([0, 500]))
            if asking.waits and chance.random() < 0.5:
                replicas.append(1, index=chance.randrange(PARTITIONS), acks=1)
                if chance.random() < 0.2:
                    await turns(1)
                    depose_and_elect(follower, chance.randrange(PARTITIONS))
            await turns()
            follower.bench.time.advance(600)
            history.append(told(asking))
            for index, error, _, size in told(asking):
                partition = replicas.manager.partitions[TOPIC][index]
                offsets[index] = partition.log.log_end_offset
                follower.last_epochs[index] = partition.log.latest_epoch or 0
                if error or not size:
                    follower.leader_epochs[index] = partition.leader_epoch
                    wrong.add(index)
        for partition in replicas.manager:
            progress = partition.followers[1]
            history.append((partition.log.high_watermark, partition.isr, progress.log_end_offset, progress.last_caught_up_ms))
        return history

    return asyncio.run(live())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(number_of(12)))
def test_looking_at_everything_says_the_same(seed: int) -> None:
    assert a_life(seed) == a_life(seed, looks_at_all=True)
