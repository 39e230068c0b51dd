"""Thousands of partitions are looked at, watched, and let go, some in each turn of the event loop."""

import asyncio

import pytest

from ottla.broker.fetching.fetch_session import FetchSession
from ottla.broker.handlers.data.fetch_stages import PARTITIONS_PER_STEP
from ottla.protocol.api_keys import ApiKey
from ottla.storage.disk.clock import elapsed_ms
from tests.support.fetching_follower import Follower, told, turns
from tests.support.handler_bench import Asking, on_a_loop
from tests.support.pauses import every_pause_waits, no_pause_waits
from tests.unit.broker.test_session_watch import expired, partitions_of, session_of, settled

MANY = 750
TURNS = 40
"""Enough for an answer, too."""


def with_slices_of_one_step(follower: Follower) -> Follower:
    """Every step is a turn of the loop."""
    every_pause_waits()
    return follower


async def begun(follower: Follower) -> tuple[Asking, FetchSession]:
    """A fetch whose session is watched in part."""
    asking = with_slices_of_one_step(follower).fetch({})
    asking.pending.connection = follower.bench.connection
    session = session_of(follower)
    while not any(asked.is_idle for asked in session):
        await turns(1)
    assert asking.waits
    assert not all(asked.is_idle for asked in session)
    return asking, session


@on_a_loop
async def test_what_comes_while_a_session_begins_to_be_watched_is_told() -> None:
    follower = Follower(MANY)
    asking, _ = await begun(follower)
    follower.replicas.append(1, index=0)
    follower.replicas.append(1, index=MANY - 1)
    await turns(MANY // PARTITIONS_PER_STEP + TURNS)
    assert [index for index, _, _, size in told(asking) if size] == [0, MANY - 1]
    # That of which there was something to be read was not waited for.
    assert [len(partition.end_waiters.waiting) for partition in partitions_of(follower)] == [1] * (MANY - 1) + [0]


@on_a_loop
async def test_a_partition_that_goes_while_a_session_begins_to_be_watched_is_answered_as_any_other() -> None:
    follower = Follower(MANY)
    asking, session = await begun(follower)
    follower.replicas.stop(0, delete=True, index=1)
    follower.replicas.stop(0, delete=True, index=MANY - 1)
    await turns(MANY // PARTITIONS_PER_STEP + TURNS)
    assert {index for index, error, _, _ in told(asking) if error} == {1, MANY - 1}
    assert {asked.index for asked in session if not asked.is_idle} == {1, MANY - 1}


@pytest.mark.slow
@on_a_loop
async def test_a_connection_that_closes_while_a_session_begins_to_be_watched_leaves_nothing() -> None:
    follower = Follower(MANY)
    asking, session = await begun(follower)
    on_lost = follower.bench.connection.client.on_lost
    assert on_lost is not None
    on_lost()
    await turns(MANY + TURNS)  # one for each partition
    assert not session.is_watched
    assert not asking.waits
    assert not any(partition.end_waiters.waiting for partition in partitions_of(follower))
    assert follower.bench.services.data.fetch_purgatory.delayed == 0


@on_a_loop
async def test_many_partitions_are_released_in_turns_and_are_known_as_well_meanwhile() -> None:
    follower = await settled(MANY)
    now_ms = elapsed_ms(follower.replicas.clock)
    session = session_of(follower)
    every_pause_waits()
    session.leave()
    follower.replicas.clock.move(5)
    partitions = partitions_of(follower)
    assert sum(len(partition.end_waiters.waiting) for partition in partitions) == MANY - 1
    assert [partition.followers[1].last_caught_up_ms for partition in partitions] == [now_ms] * MANY
    no_pause_waits()
    follower.replicas.append(1, index=0)
    await expired(follower, follower.fetch({}))  # the follower has come back
    assert [len(partition.end_waiters.waiting) for partition in partitions] == [1] * MANY
    assert all(asked.waits_in is not None for asked in session)
    assert sum(partition.followers[1].idle is None for partition in partitions) == 1


def test_a_large_fetch_looks_once_a_turn_however_many_partitions_move(looked: list[int]) -> None:
    asyncio.run(moving_together(looked))


async def moving_together(looked: list[int]) -> None:
    many = 1025
    follower = Follower(many)
    follower.session_id = follower.session_epoch = 0
    asking = follower.bench.ask(follower.request(dict.fromkeys(range(many), 0)), ApiKey.FETCH, 17)
    await turns()
    assert asking.waits
    looked.clear()
    for index in range(100):
        follower.replicas.append(1, index=index)
    await turns(10)
    assert sorted(looked) == list(range(many))
    assert len([size for _, _, _, size in told(asking) if size]) == 100
