"""A client whose every batch begins a segment gets a turn for each of them; other logs do not wait."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from tests.support.batches import a_batch
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.pauses import a_turn, every_pause_waits
from tests.support.replicas import state
from tests.unit.broker.test_produce_handler import alone

BATCH = a_batch(1, value_bytes=20)


def a_bench() -> HandlerBench:
    """Partitions 0 and 1 have segments of one batch, and the rolls of partition 0 are behind."""
    handlers = alone(segment_bytes=str(len(BATCH)))
    while not handlers.replicas.partition.log.rolls.unfinished:
        assert handlers.produce(BATCH).produced[0].error_code == ErrorCode.NONE
    every_pause_waits()
    return handlers


async def answered(asked: list[Asking]) -> list[int]:
    """The turns after which each was answered."""
    turns: dict[int, int] = {}
    for turn in range(100):
        for number, each in enumerate(asked):
            if not each.waits:
                turns.setdefault(number, turn)
        if len(turns) == len(asked):
            return [turns[number] for number in range(len(asked))]
        await a_turn()
    raise AssertionError(f"only {len(turns)} of {len(asked)} are answered")


@on_a_loop
async def test_each_roll_of_a_log_that_is_behind_waits_for_its_turn() -> None:
    handlers = a_bench()
    asked = [handlers.produce(BATCH) for _ in range(4)]
    turns = await answered(asked)
    assert turns == sorted(set(turns))
    offsets = [each.produced[0].base_offset for each in asked]
    assert offsets == list(range(offsets[0], offsets[0] + 4))


@on_a_loop
async def test_another_log_is_appended_to_meanwhile() -> None:
    handlers = a_bench()
    behind = handlers.produce(BATCH, BATCH)
    other = handlers.produce(None, BATCH)
    assert behind.waits
    assert not other.waits
    await answered([behind])
    assert [each.base_offset for each in behind.produced] == [2, 0]
    assert [each.base_offset for each in other.produced] == [-1, 1]


@on_a_loop
async def test_a_batch_that_waits_is_refused_when_the_broker_leads_no_longer() -> None:
    handlers = a_bench()
    waiting = handlers.produce(BATCH)
    assert waiting.waits
    handlers.replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    await answered([waiting])
    assert waiting.produced[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_a_loop
async def test_without_haste_nothing_waits() -> None:
    handlers = alone(segment_bytes=str(len(BATCH)))
    assert not any(handlers.produce(BATCH).waits for _ in range(20))
