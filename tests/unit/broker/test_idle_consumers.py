"""Partitions of a consumer's session of which there is nothing to tell are passed over, and nobody can tell the difference."""

import asyncio
import random

import pytest

from broker.handlers.data import fetch_reading
from protocol.api_keys import ApiKey
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from replication.leader.partition import Partition
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.replicas import TOPIC, TOPIC_ID, state

PARTITIONS = 5
VERSION = 16


class Consumer:
    """A consumer in a session with broker 0. `unsaid`: the partitions that its next request names."""

    def __init__(self, isolation: int = 0) -> None:
        self.bench = HandlerBench()
        self.replicas = self.bench.replicas
        self.isolation = isolation
        for index in range(PARTITIONS):
            self.lead(index, 0)
        self.bench.know(**{f"p{index}": 0 for index in range(PARTITIONS)})
        self.offsets = [0] * PARTITIONS
        self.epochs = [0] * PARTITIONS
        self.unsaid = set(range(PARTITIONS))
        self.session_epoch = 0
        self.session_id = self.fetch(max_wait_ms=0).response.session_id

    def lead(self, index: int, epoch: int, leader: int = 0) -> None:
        self.replicas.say(state(leader=leader, index=index, isr=[0, 1], replicas=[0, 1], epoch=epoch, partition_epoch=epoch))

    def partition(self, index: int) -> Partition:
        return self.replicas.manager.partitions[TOPIC][index]

    def fetch(self, max_wait_ms: int = 500) -> Asking:
        named = [
            FetchPartition(
                partition=index,
                current_leader_epoch=self.epochs[index],
                fetch_offset=self.offsets[index],
                last_fetched_epoch=-1,
                partition_max_bytes=1 << 20,
            )
            for index in sorted(self.unsaid)
        ]
        self.unsaid.clear()
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.isolation,
            session_id=self.session_id if self.session_epoch else 0,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=named)] if named else [],
        )
        self.session_epoch += 1
        return self.bench.ask(request, ApiKey.FETCH, VERSION)


async def a_life(seed: int) -> list[object]:
    chance = random.Random(seed)
    consumer = Consumer(isolation=seed % 2)
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


@pytest.mark.parametrize("seed", range(20))
def test_passing_over_what_is_idle_tells_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    passed_over = asyncio.run(a_life(seed))
    monkeypatch.setattr(fetch_reading, "is_idle_consumer", lambda *_: False)
    assert passed_over == asyncio.run(a_life(seed))


@on_a_loop
async def test_idle_partitions_are_not_read() -> None:
    consumer = Consumer()
    read: list[int] = []
    original = fetch_reading.read_partition

    def reading(replicas, name, asked, *more, **also):  # type: ignore[no-untyped-def]  # as read_partition
        read.append(asked.partition)
        return original(replicas, name, asked, *more, **also)

    fetch_reading.read_partition = reading
    try:
        asking = consumer.fetch()
        assert asking.waits
        consumer.replicas.append(1, index=3, acks=1)
        partition = consumer.partition(3)
        partition.on_follower_fetch(1, 1, 0, 0)
        assert [each.partition_index for each in asking.fetched] == [3]
    finally:
        fetch_reading.read_partition = original
    assert read == [3]
