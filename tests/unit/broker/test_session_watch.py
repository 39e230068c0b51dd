"""A follower's fetch looks at what changed alone, and says and learns what looking at everything would."""

import asyncio
import random
from collections.abc import Callable

import pytest

from ottla.broker.fetching.fetch_session import FetchSession
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.replication.leader.partition import Partition
from ottla.replication.leader.progress import ReplicaProgress
from ottla.storage.disk.clock import elapsed_ms
from tests.support.examples import number_of
from tests.support.fetching_follower import Follower, told, turns
from tests.support.handler_bench import Asking, on_a_loop
from tests.support.replicas import LAG_MS, TOPIC, TOPIC_ID, state

PARTITIONS = 6
MANY = 100


def partitions_of(follower: Follower) -> list[Partition]:
    return list(follower.replicas.manager.partitions[TOPIC].values())


def session_of(follower: Follower) -> FetchSession:
    """The only one."""
    (session,) = follower.bench.services.data.fetch_sessions.sessions.values()
    return session


async def expired(follower: Follower, asking: Asking) -> Asking:
    follower.bench.time.advance(600)
    await turns()
    assert not asking.waits
    return asking


async def settled(partitions: int = PARTITIONS) -> Follower:
    """A follower that has everything and was told all of it."""
    follower = Follower(partitions)
    await expired(follower, follower.fetch({}))
    assert all(partition.followers[1].idle for partition in partitions_of(follower))
    return follower


def test_a_fetch_looks_only_at_what_changed(looked: list[int]) -> None:
    async def scenario() -> None:
        follower = await settled(MANY)
        looked.clear()
        waiting = follower.fetch({})
        assert not looked
        follower.replicas.append(1, index=7)
        follower.replicas.append(1, index=3)
        await turns()
        assert [index for index, _, _, _ in told(waiting)] == [3, 7]
        assert sorted(looked) == [3, 7]
        looked.clear()
        await expired(follower, follower.fetch({3: 1, 7: 1}))  # is told that they are committed
        await expired(follower, follower.fetch({}))
        assert set(looked) == {3, 7}
        looked.clear()
        await expired(follower, follower.fetch({}))
        assert not looked

    asyncio.run(scenario())


@on_a_loop
async def test_what_was_served_is_served_last() -> None:
    follower = await settled()
    waiting = follower.fetch({})
    follower.replicas.append(1, index=1)
    await turns()
    assert [index for index, _, _, _ in told(waiting)] == [1]
    waiting = follower.fetch({1: 1})
    for index in (4, 1, 2):
        follower.replicas.append(1, index=index)
    await turns()
    assert [index for index, _, _, _ in told(waiting)] == [2, 4, 1]


@on_a_loop
async def test_a_settled_follower_is_known_to_have_been_here_with_every_fetch() -> None:
    follower = await settled()
    progress = follower.replicas.partition.followers[1]
    follower.replicas.clock.move(LAG_MS)
    follower.fetch({})
    now_ms = elapsed_ms(follower.replicas.clock)
    assert (progress.last_fetch_ms, progress.last_caught_up_ms) == (now_ms, now_ms)
    follower.replicas.clock.move(LAG_MS)
    follower.replicas.append(1, index=0)
    assert progress.idle is None
    assert (progress.last_fetch_ms, progress.last_caught_up_ms) == (now_ms, now_ms)


@on_a_loop
async def test_fetches_of_settled_partitions_are_counted() -> None:
    follower = await settled()
    stats = follower.replicas.partition.stats
    before = stats.fetch_requests
    for _ in range(3):
        await expired(follower, follower.fetch({}))
    for partition in partitions_of(follower):
        partition.count_idle_fetches()
    assert stats.fetch_requests == before + 3 * PARTITIONS
    await expired(follower, follower.fetch({}))
    follower.replicas.manager.remove(follower.replicas.partition)  # it takes with it what it has to count
    assert stats.fetch_requests == before + 3 * PARTITIONS + 1


@on_a_loop
async def test_a_log_start_offset_that_moves_wakes_nobody_and_is_told_in_the_next_answer() -> None:
    follower = Follower(PARTITIONS)
    follower.replicas.append(2, index=3)
    await turns()
    waiting = follower.fetch({3: 2})
    follower.bench.time.advance(600)
    await expired(follower, follower.fetch({}))
    waiting = follower.fetch({})
    partition = partitions_of(follower)[3]
    assert partition.followers[1].idle
    partition.delete_records(1)
    await turns()
    assert waiting.waits
    await expired(follower, waiting)
    assert [(each.partition_index, each.log_start_offset) for each in waiting.fetched] == [(3, 1)]


@on_a_loop
async def test_a_settled_follower_that_leaves_the_isr_comes_in_with_its_next_fetch() -> None:
    follower = await settled()
    follower.replicas.partition.confirm_isr((0,), 1)
    follower.fetch({})
    assert [proposal.isr for proposal in follower.replicas.proposals.made] == [(0, 1)]


@on_a_loop
async def test_a_fetch_without_the_session_is_heard_of_too() -> None:
    follower = await settled()
    progress = follower.replicas.partition.followers[1]
    follower.replicas.clock.move(10)
    ask_without_session(follower, 0, 0)
    assert progress.idle is None
    assert progress.last_fetch_ms == elapsed_ms(follower.replicas.clock)


def ask_without_session(follower: Follower, index: int, offset: int) -> None:
    asked = FetchPartition(
        partition=index,
        current_leader_epoch=follower.leader_epochs[index],
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=0,
        partition_max_bytes=1,
    )
    follower.bench.ask(
        FetchRequest(
            replica_state=ReplicaState(replica_id=1, replica_epoch=-1),
            max_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[asked])],
        ),
        ApiKey.FETCH,
        17,
    )


def is_left_alone(follower: Follower, session: FetchSession, now_ms: int) -> bool:
    """Whether nothing of the session is watched any more, and what it knew of the follower is known."""
    for asked in session:
        assert not asked.is_idle
        assert asked.waits_in is None
    for partition in partitions_of(follower):
        progress = partition.followers[1]
        assert progress.idle is None
        assert progress.last_caught_up_ms == now_ms
        assert not partition.idle_fetches
        assert not partition.end_waiters.waiting
    return True


@on_a_loop
async def test_a_session_that_ends_leaves_nothing_and_answers_who_waits() -> None:
    follower = await settled()
    follower.replicas.clock.move(1)
    waiting = follower.fetch({})
    session = session_of(follower)
    now_ms = elapsed_ms(follower.replicas.clock)
    follower.bench.services.data.fetch_sessions.remove(follower.session_id)
    assert told(waiting) == []
    assert session.has_ended
    assert is_left_alone(follower, session, now_ms)
    assert follower.bench.services.data.fetch_purgatory.delayed == 0


@pytest.mark.parametrize(
    "asks",
    [
        lambda follower: follower.fetch({}),
        lambda follower: follower.fetch({}, min_bytes=2),
        lambda follower: follower.fetch(dict.fromkeys(range(PARTITIONS), 0), max_wait_ms=0),
    ],
    ids=["in the same way", "more than a byte", "answered at once"],
)
def test_who_waits_is_answered_when_another_fetch_goes_on_with_the_session(asks: Callable[[Follower], Asking]) -> None:
    async def scenario() -> None:
        follower = await settled()
        waiting = follower.fetch({})
        other = asks(follower)
        assert told(waiting) == []
        if other.waits:
            follower.replicas.append(1, index=2)
            follower.replicas.append(1, index=3)
            await turns()
            assert [index for index, _, _, _ in told(other)] == [2, 3]
        else:
            assert told(other) == []

    asyncio.run(scenario())


@on_a_loop
async def test_an_idle_follower_has_one_place_in_each_list_however_often_it_fetches() -> None:
    follower = await settled()
    for _ in range(5):
        await expired(follower, follower.fetch({}))
    assert [len(partition.end_waiters.waiting) for partition in partitions_of(follower)] == [1] * PARTITIONS
    waiting = follower.fetch({})
    purgatory = follower.bench.services.data.fetch_purgatory
    assert (purgatory.delayed, purgatory.watched) == (1, PARTITIONS)
    await expired(follower, waiting)
    assert (purgatory.delayed, purgatory.watched) == (0, 0)


@on_a_loop
async def test_a_settled_partition_that_goes_is_answered_as_any_other() -> None:
    follower = await settled()
    waiting = follower.fetch({})
    follower.replicas.stop(0, delete=True, index=2)
    await turns()
    assert [(index, error) for index, error, _, _ in told(waiting)] == [(2, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def known_of(progress: ReplicaProgress) -> tuple[int, ...]:
    return (
        progress.log_end_offset,
        progress.log_start_offset,
        progress.last_caught_up_ms,
        progress.last_fetch_ms,
        progress.last_fetch_leader_end_offset,
    )


class Life:
    """What happens to a leader and its follower, by a seed; `history` is what either of them can tell of it."""

    def __init__(self, seed: int, *, looks_at_all: bool = False) -> None:
        self.chance = random.Random(seed)
        self.looks_at_all = looks_at_all
        self.follower = Follower(PARTITIONS)
        self.replicas = self.follower.replicas
        self.offsets = [0] * PARTITIONS
        self.starts = [0] * PARTITIONS
        self.unsaid: set[int] = set()
        self.history: list[object] = []
        self.partition_epochs = [0] * PARTITIONS

    def partition(self, index: int) -> Partition:
        return self.replicas.manager.partitions[TOPIC][index]

    def lead(self, index: int, *, is_new_epoch: bool, isr: tuple[int, ...] = (0, 1), replicas: tuple[int, ...] = (0, 1)) -> None:
        partition = self.partition(index)
        epoch = partition.leader_epoch + is_new_epoch
        states = [state(index=index, isr=isr, replicas=replicas, epoch=epoch, partition_epoch=partition.partition_epoch + 1)]
        self.replicas.say(*states)

    def happens(self) -> None:
        """One thing, or nothing."""
        chance = self.chance
        index = chance.randrange(PARTITIONS)
        partition = self.partition(index)
        log = partition.log
        proposals = self.replicas.proposals
        match chance.randrange(16):
            case 0 | 1:
                self.replicas.append(chance.randint(1, 3), index=index, acks=1)
            case 2 | 3:
                self.replicas.clock.move(chance.choice([1, 1, 50, LAG_MS // 2, LAG_MS + 1]))
            case 4:
                self.replicas.shrink()
            case 5 if proposals.undecided:
                proposals.confirm()
            case 6 if proposals.undecided:
                proposals.refuse(chance.choice([ErrorCode.INVALID_REQUEST, ErrorCode.FENCED_LEADER_EPOCH]))
            case 7 if proposals.undecided:
                proposals.confirm(isr=chance.choice([(0,), (0, 1)]))
            case 8 if chance.random() < 0.3:
                self.lead(index, is_new_epoch=chance.random() < 0.7, isr=chance.choice([(0,), (0, 1)]))
            case 9 if chance.random() < 0.1:
                self.lead(index, is_new_epoch=True, isr=(0,), replicas=chance.choice([(0, 2), (0, 1, 2)]))
            case 10:
                log.increment_log_start_offset(chance.randint(log.log_start_offset, log.high_watermark), "a test")
            case 11 if chance.random() < 0.2:
                self.offsets[index] = chance.randint(0, self.offsets[index] + 1)
                self.unsaid.add(index)
            case 12:
                self.starts[index] = min(log.log_start_offset, self.offsets[index])
                self.unsaid.add(index)
            case 13 if chance.random() < 0.3:
                ask_without_session(self.follower, index, self.offsets[index])
            case 14 if chance.random() < 0.2:
                self.replicas.alive(*chance.choice([(0, 1, 2), (0, 2)]))
            case 15 if chance.random() < 0.2:
                log.roll()

    async def fetch(self) -> None:
        chance = self.chance
        follower = self.follower
        named = {}
        if chance.random() < 0.9:
            named = {index: self.offsets[index] for index in sorted(self.unsaid)}
            self.unsaid.clear()
        if self.looks_at_all:
            session_of(follower).look_at_all()
        asking = follower.fetch(named, max_wait_ms=chance.choice([0, 500, 500, 500, 500]), start=min(self.starts))
        for _ in range(chance.choice([0, 0, 1, 3])):
            self.happens()
            if chance.random() < 0.3:
                await turns(1)
        await turns()
        self.history.append(asking.waits and "waits")
        follower.bench.time.advance(600)
        await turns()
        self.history.append(told(asking))
        self.history.append([each.log_start_offset for each in asking.fetched])
        for index, error, _, size in told(asking):
            partition = self.partition(index)
            if error or size:
                self.unsaid.add(index)
            if not error and size:
                self.offsets[index] = partition.log.log_end_offset
                follower.last_epochs[index] = partition.log.latest_epoch or 0
            if error:
                self.offsets[index] = chance.choice([self.offsets[index], partition.log.log_end_offset])
                follower.last_epochs[index] = partition.log.latest_epoch or 0
                follower.leader_epochs[index] = partition.leader_epoch

    async def live(self) -> list[object]:
        for _ in range(100):
            for _ in range(self.chance.choice([0, 0, 0, 1, 2])):
                self.happens()
            await self.fetch()
            for partition in self.replicas.manager:
                progress = partition.followers.get(1)
                self.history.append((partition.log.high_watermark, partition.isr, progress and known_of(progress)))
            self.history.append([proposal.isr for proposal in self.replicas.proposals.made])
        return self.history


def a_life(seed: int, *, looks_at_all: bool = False) -> list[object]:
    async def live() -> list[object]:
        return await Life(seed, looks_at_all=looks_at_all).live()

    return asyncio.run(live())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(number_of(40)))
def test_looking_at_everything_says_and_learns_the_same(seed: int) -> None:
    assert a_life(seed) == a_life(seed, looks_at_all=True)
