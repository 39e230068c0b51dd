"""Thousands of partitions are watched, and let go, some in each turn of the event loop."""

import asyncio

import pytest

from broker.fetching.session_watch import LET_GO_PER_TURN, SessionWatch, WatchedPartition
from broker.handlers.data.delayed_fetch import DelayedFetch
from broker.handlers.data.fetch_reading import MOST_PARTITIONS_AT_ONCE, PARTITIONS_PER_STEP
from protocol.api_keys import ApiKey
from replication.leader.partition import Partition
from storage.disk.clock import elapsed_ms
from tests.support.fetching_follower import Follower, told, turns
from tests.support.handler_bench import Asking, on_a_loop
from tests.unit.broker.test_session_watch import expired, partitions_of, settled

MANY = 3 * LET_GO_PER_TURN
TURNS = 40
"""Enough for an answer, too."""


def with_slices_of_one_step(follower: Follower) -> Follower:
    """Every step is a turn of the loop."""
    follower.bench.turns._slice_ns = 0
    return follower


class Client:
    """Waits for its answer."""

    def on_answer_ready(self) -> None:
        """See Waiter."""


async def begun(follower: Follower) -> tuple[Asking, SessionWatch]:
    """A fetch whose session is watched in part."""
    asking = with_slices_of_one_step(follower).fetch({})
    asking.pending.connection = Client()
    (session,) = follower.bench.services.fetch_sessions.sessions.values()
    while session.watch is None or not any(asked.watched for asked in session.partitions.values()):
        await turns(1)
    assert asking.waits
    return asking, session.watch


def watches(partition: Partition) -> int:
    return sum(isinstance(waiter, WatchedPartition) for waiter in partition.waiters.waiting)


@on_a_loop
async def test_what_comes_while_a_session_begins_to_be_watched_is_told() -> None:
    follower = Follower(MANY)
    asking, _ = await begun(follower)
    follower.replicas.append(1, index=0)
    follower.replicas.append(1, index=MANY - 1)
    await turns(MANY // PARTITIONS_PER_STEP + TURNS)
    assert [index for index, _, _, size in told(asking) if size] == [0, MANY - 1]
    assert [watches(partition) for partition in partitions_of(follower)] == [1] * MANY


@on_a_loop
async def test_a_partition_that_goes_while_a_session_begins_to_be_watched_is_answered_as_any_other() -> None:
    follower = Follower(MANY)
    asking, watch = await begun(follower)
    follower.replicas.stop(0, delete=True, index=1)
    follower.replicas.stop(0, delete=True, index=MANY - 1)
    await turns(MANY // PARTITIONS_PER_STEP + TURNS)
    assert {index for index, error, _, _ in told(asking) if error} == {1, MANY - 1}
    assert watch.has_ended


@on_a_loop
async def test_a_connection_that_closes_while_a_session_begins_to_be_watched_leaves_nothing() -> None:
    follower = Follower(MANY)
    asking, watch = await begun(follower)
    on_lost = follower.bench.connection.client.on_lost
    assert on_lost is not None
    on_lost()
    await turns(MANY // PARTITIONS_PER_STEP + TURNS)
    assert watch.has_ended
    assert not asking.waits
    assert not any(partition.waiters.waiting for partition in partitions_of(follower))
    assert follower.bench.services.fetch_purgatory.delayed == 0


@on_a_loop
async def test_many_partitions_are_let_go_in_several_turns_and_are_known_as_well_meanwhile() -> None:
    follower = await settled(MANY)
    now_ms = elapsed_ms(follower.replicas.clock)
    (session,) = follower.bench.services.fetch_sessions.sessions.values()
    session.end_watch()
    follower.replicas.clock.move(5)
    partitions = partitions_of(follower)
    assert sum(map(watches, partitions)) == MANY - LET_GO_PER_TURN
    assert [partition.followers[1].last_caught_up_ms for partition in partitions] == [now_ms] * MANY
    follower.replicas.append(1, index=0)
    await expired(follower, follower.fetch({}))  # begins another watch
    assert [watches(partition) for partition in partitions] == [1] * MANY
    assert all(asked.watched is not None for asked in session.partitions.values())
    assert sum(partition.followers[1].idle is None for partition in partitions) == 1


def test_a_large_fetch_looks_once_a_turn_however_many_partitions_move(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(moving_together(monkeypatch))


async def moving_together(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(MOST_PARTITIONS_AT_ONCE + 1)
    looks: list[str] = []
    look = DelayedFetch._has_moved
    monkeypatch.setattr(DelayedFetch, "_has_moved", lambda fetch: (looks.append(""), look(fetch))[1])
    follower.session_id = follower.session_epoch = 0
    asking = follower.bench.ask(follower.request(dict.fromkeys(range(MOST_PARTITIONS_AT_ONCE + 1), 0)), ApiKey.FETCH, 17)
    await turns()
    assert asking.waits
    for index in range(100):
        follower.replicas.append(1, index=index)
    await turns(10)
    assert len(looks) == 1
    assert len([size for _, _, _, size in told(asking) if size]) == 100
