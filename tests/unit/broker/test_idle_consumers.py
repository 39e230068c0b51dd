"""A consumer's fetch looks at what changed alone, and says what looking at everything would."""

import asyncio
import os
import random
from collections.abc import Callable

import pytest

from ottla.broker.fetching.fetch_session import FetchSession
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.replica_selector import select_by_rack
from tests.support.examples import number_of
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.replicas import TOPIC, TOPIC_ID, state

PARTITIONS = 5
MANY = 100
VERSION = 16


class Consumer:
    """A consumer in a session with broker 0. `unsaid`: the partitions that its next request names."""

    def __init__(self, isolation: int = 0, version: int = VERSION, partitions: int = PARTITIONS) -> None:
        self.bench = HandlerBench()
        self.replicas = self.bench.replicas
        self.isolation = isolation
        self.version = version
        for index in range(partitions):
            self.lead(index, 0)
        self.bench.know(**{f"p{index}": 0 for index in range(partitions)})
        self.offsets = [0] * partitions
        self.epochs = [0] * partitions
        self.unsaid = set(range(partitions))
        self.session_epoch = 0
        self.rack_id = ""
        self.session_id = self.fetch(max_wait_ms=0).response.session_id

    def lead(self, index: int, epoch: int, leader: int = 0) -> None:
        self.replicas.say(state(leader=leader, index=index, isr=[0, 1], replicas=[0, 1], epoch=epoch, partition_epoch=epoch))

    @property
    def session(self) -> FetchSession:
        """The only one."""
        (session,) = self.bench.services.data.fetch_sessions.sessions.values()
        return session

    def partition(self, index: int) -> Partition:
        return self.replicas.manager.partitions[TOPIC][index]

    def fetch(self, max_wait_ms: int = 500) -> Asking:
        named = [
            FetchPartition(
                partition=index,
                current_leader_epoch=self.epochs[index] if self.version >= 9 else -1,
                fetch_offset=self.offsets[index],
                last_fetched_epoch=-1,
                partition_max_bytes=1 << 20,
            )
            for index in sorted(self.unsaid)
        ]
        self.unsaid.clear()
        topic = FetchTopic(partitions=named)
        if self.version >= 13:
            topic.topic_id = TOPIC_ID
        else:
            topic.topic = TOPIC
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.isolation,
            session_id=self.session_id if self.session_epoch else 0,
            session_epoch=self.session_epoch,
            topics=[topic] if named else [],
            rack_id=self.rack_id,
        )
        self.session_epoch += 1
        return self.bench.ask(request, ApiKey.FETCH, self.version)


async def a_life(seed: int, version: int, *, looks_at_all: bool = False) -> list[object]:
    chance = random.Random(seed)
    consumer = Consumer(isolation=seed % 2, version=version)
    replicas = consumer.replicas
    history: list[object] = []

    def happens() -> None:
        index = chance.randrange(PARTITIONS)
        partition = consumer.partition(index)
        log = partition.log
        match chance.randrange(8):
            case 0 | 1 if partition.is_leader:
                replicas.append(chance.randint(1, 3), index=index, acks=1)
            case 2 | 3 if partition.is_leader:
                partition.on_follower_fetch(1, log.log_end_offset, 0, replicas.clock.now_ms())
            case 4:
                log.increment_log_start_offset(chance.randint(log.log_start_offset, log.high_watermark), "a test")
            case 5 if chance.random() < 0.4:
                consumer.lead(index, partition.leader_epoch + 1, chance.choice([0, 0, 1]))
            case 6 if chance.random() < 0.3:
                consumer.offsets[index] = chance.randint(0, log.log_end_offset + 1)
                consumer.unsaid.add(index)
            case 7:
                consumer.epochs[index] = chance.choice([-1, partition.leader_epoch])
                consumer.unsaid.add(index)

    for _ in range(120):
        for _ in range(chance.choice([0, 0, 1, 3])):
            happens()
        if looks_at_all:
            consumer.session.look_at_all()
        asking = consumer.fetch(chance.choice([0, 500]))
        history.append(asking.waits)
        if asking.waits:
            happens()
            happens()
        history.append(asking.waits)
        consumer.bench.time.advance(600)
        for each in asking.fetched:
            told = (each.error_code, each.high_watermark, each.last_stable_offset, each.log_start_offset, bytes(each.records or b""))
            history.append((each.partition_index, *told))
            if each.records and not each.error_code:
                consumer.offsets[each.partition_index] = consumer.partition(each.partition_index).log.high_watermark
                consumer.unsaid.add(each.partition_index)
    return history


@pytest.mark.slow
@pytest.mark.parametrize("version", [7, 9, 11, 12, 13, 16, 17])
@pytest.mark.parametrize("seed", range(12 if "OTTLA_SOAK" in os.environ else number_of(4)))
def test_looking_at_everything_tells_the_same(seed: int, version: int) -> None:
    changed = asyncio.run(a_life(seed, version))
    assert changed == asyncio.run(a_life(seed, version, looks_at_all=True))


@pytest.mark.slow
@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
def test_a_fetch_looks_only_at_what_changed(version: int, looked: list[int]) -> None:
    @on_a_loop
    async def scenario() -> None:
        consumer = Consumer(version=version, partitions=MANY)
        expired(consumer, consumer.fetch())
        looked.clear()
        asking = consumer.fetch()
        assert asking.waits
        for index in (77, 3):
            consumer.replicas.append(1, index=index, acks=1)
            partition = consumer.partition(index)
            partition.on_follower_fetch(1, 1, 0, 0)
        assert [each.partition_index for each in asking.fetched] == [77]
        assert looked == [77]
        looked.clear()
        consumer.offsets[77] = 1
        consumer.unsaid.add(77)
        assert [each.partition_index for each in consumer.fetch().fetched] == [3]
        assert sorted(looked) == [3, 77]
        looked.clear()
        consumer.offsets[3] = 1
        consumer.unsaid.add(3)
        expired(consumer, consumer.fetch())
        assert looked == [3]
        looked.clear()
        expired(consumer, consumer.fetch())
        assert not looked

    scenario()


def expired(consumer: Consumer, asking: Asking) -> None:
    consumer.bench.time.advance(600)
    assert asking.fetched == []


Happening = Callable[[Consumer], object]


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (lambda consumer: consumer.lead(1, 1), ErrorCode.FENCED_LEADER_EPOCH),
        (lambda consumer: consumer.replicas.stop(0, delete=True, index=1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda consumer: consumer.partition(1).log.truncations.truncate_to(0), ErrorCode.OFFSET_OUT_OF_RANGE),
        (lambda consumer: consumer.partition(1).log.increment_log_start_offset(2, "a test"), ErrorCode.NONE),
    ],
    ids=["another epoch", "deleted", "truncated", "begins later"],
)
@pytest.mark.parametrize("version", [9, 12, 17])
def test_whatever_happens_to_an_idle_partition_is_seen_by_the_next_fetch(happens: Happening, error: ErrorCode, version: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        consumer = Consumer(version=version)
        consumer.replicas.append(2, index=1, acks=1)
        consumer.partition(1).on_follower_fetch(1, 2, 0, 0)
        assert len(consumer.fetch().fetched) == 1
        consumer.offsets[1] = 2
        consumer.unsaid.add(1)
        expired(consumer, consumer.fetch())
        assert all(asked.is_idle for asked in consumer.session)
        happens(consumer)
        (told,) = consumer.fetch(max_wait_ms=0).fetched
        assert (told.partition_index, told.error_code) == (1, error)

    scenario()


@on_a_loop
async def test_a_partition_that_was_deleted_and_created_again_is_read_by_its_name() -> None:
    consumer = Consumer(version=12)
    expired(consumer, consumer.fetch())
    old = consumer.partition(1)
    consumer.replicas.stop(0, delete=True, index=1)
    consumer.lead(1, 0)
    assert consumer.partition(1) is not old
    expired(consumer, consumer.fetch())
    asking = consumer.fetch()
    assert asking.waits
    consumer.replicas.append(1, index=1, acks=1)
    consumer.partition(1).on_follower_fetch(1, 1, 0, 0)
    assert [(each.partition_index, each.high_watermark) for each in asking.fetched] == [(1, 1)]
    assert not old.waiters.waiting
    assert not old.idle_fetches


@on_a_loop
async def test_idle_fetches_of_consumers_are_counted() -> None:
    consumer = Consumer()
    expired(consumer, consumer.fetch())
    stats = consumer.partition(0).stats
    before = stats.fetch_requests
    for _ in range(3):
        expired(consumer, consumer.fetch())
    for index in range(PARTITIONS):
        consumer.partition(index).count_idle_fetches()
    assert stats.fetch_requests == before + 3 * PARTITIONS


@on_a_loop
async def test_a_reader_of_committed_records_is_looked_at_anew_when_it_reads_all() -> None:
    consumer = Consumer(isolation=1)
    expired(consumer, consumer.fetch())
    assert all(asked.is_idle for asked in consumer.session)
    consumer.isolation = 0
    assert consumer.fetch(max_wait_ms=0).fetched == []
    assert all(asked.is_idle for asked in consumer.session)


@pytest.mark.parametrize(("rack_id", "is_idle"), [("r0", True), ("elsewhere", False)])
def test_a_consumer_in_the_rack_of_the_leader_is_never_sent_elsewhere_and_so_may_be_idle(rack_id: str, is_idle: bool) -> None:
    @on_a_loop
    async def scenario() -> None:
        consumer = Consumer()
        consumer.replicas.manager.replica_selector = select_by_rack
        consumer.rack_id = rack_id
        expired(consumer, consumer.fetch())
        assert {asked.is_idle for asked in consumer.session} == {is_idle}

    scenario()
