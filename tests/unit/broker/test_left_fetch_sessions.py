"""A follower that is restarted, or loses its connection, leaves its fetch session without a word: nothing of it is watched any more."""

from ottla.storage.disk.clock import elapsed_ms
from tests.support.connections import ClientConnection
from tests.support.fetching_follower import Follower
from tests.support.handler_bench import on_a_loop
from tests.support.replicas import LAG_MS
from tests.unit.broker.test_session_watch import PARTITIONS, expired, partitions_of, session_of, settled


def begin_another_session(follower: Follower) -> None:
    """As a follower that was restarted does, which knows of no session."""
    follower.session_id = follower.session_epoch = 0
    follower.fetch(dict.fromkeys(range(PARTITIONS), 0), max_wait_ms=0)


@on_a_loop
async def test_a_session_that_its_follower_has_left_is_watched_no_more() -> None:
    follower = await settled()
    for _ in range(3):
        begin_another_session(follower)
        await expired(follower, follower.fetch({}))
    assert [len(partition.end_waiters.waiting) for partition in partitions_of(follower)] == [1] * PARTITIONS
    assert [session.is_watched for session in follower.bench.services.data.fetch_sessions.sessions.values()] == [False] * 3 + [True]


@on_a_loop
async def test_a_session_whose_connection_closes_is_watched_no_more() -> None:
    follower = await settled()
    waiting = follower.fetch({})
    now_ms = elapsed_ms(follower.replicas.clock)
    on_closed, on_lost = waiting.pending.on_closed, follower.bench.connection.client.on_lost
    assert on_closed is not None
    assert on_lost is not None
    on_closed()  # in the order of Connection.connection_lost
    on_lost()
    purgatory = follower.bench.services.data.fetch_purgatory
    assert (purgatory.delayed, purgatory.watched) == (0, 0)
    for partition in partitions_of(follower):
        assert not partition.end_waiters.waiting
        assert (partition.followers[1].idle, partition.followers[1].last_fetch_ms) == (None, now_ms)


@on_a_loop
async def test_a_session_whose_connection_closes_between_two_fetches_is_watched_no_more() -> None:
    follower = await settled()
    info = follower.bench.connection.client
    assert info.on_lost is not None
    info.on_lost()
    assert not session_of(follower).is_watched
    for partition in partitions_of(follower):
        assert not partition.end_waiters.waiting
        assert partition.followers[1].idle is None


@on_a_loop
async def test_nothing_is_watched_for_a_connection_that_is_gone() -> None:
    follower = Follower(PARTITIONS)
    follower.bench.connection.client.is_lost = True
    await expired(follower, follower.fetch({}))
    assert not session_of(follower).is_watched
    assert not any(partition.idle_fetches for partition in partitions_of(follower))


@on_a_loop
async def test_two_sessions_of_one_follower_do_not_answer_each_other() -> None:
    follower = await settled()
    session = (follower.session_id, follower.session_epoch + 1)
    connection = follower.bench.connection
    waiting = follower.fetch({})
    other_connection = follower.bench.connection = ClientConnection()
    begin_another_session(follower)
    other = follower.fetch({})
    assert waiting.waits
    assert other.waits
    await expired(follower, waiting)
    other_session = (follower.session_id, follower.session_epoch)
    follower.session_id, follower.session_epoch = session
    follower.bench.connection = connection
    follower.replicas.clock.move(LAG_MS)
    follower.fetch({})
    first_ms = elapsed_ms(follower.replicas.clock)
    progress = [partition.followers[1] for partition in partitions_of(follower)]
    assert [each.last_caught_up_ms for each in progress] == [first_ms] * PARTITIONS
    follower.session_id, follower.session_epoch = other_session
    follower.bench.connection = other_connection
    follower.replicas.clock.move(LAG_MS)
    follower.fetch({})
    assert [each.last_caught_up_ms for each in progress] == [first_ms + LAG_MS] * PARTITIONS
