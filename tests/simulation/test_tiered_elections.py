"""An unclean election loses records of which the store has copies: nobody reads those, and the new records are copied and read."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition
from ottla.storage.remote.entries import SegmentState, TopicIdPartition
from tests.simulation.clients import Consumer, Leaders, Producer
from tests.simulation.cluster import SESSION_TIMEOUT_S, SimulatedCluster
from tests.simulation.tiered import CONFIG, TOPIC_CONFIG, TWO_HOURS_MS

DATA = TopicPartition("records", 0)
BATCHES = 40
"""Three closed segments, and some more."""
UNCLEAN = 1
PATIENCE_S = 120.0
ALONE = {"min.insync.replicas": "1"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Records:
    """What producers were told of the partition, the last answer for each offset, and what a consumer has read."""

    def __init__(self) -> None:
        self.written: dict[int, bytes] = {}
        self.read: dict[int, bytes | None] = {}

    def acknowledge(self, offset: int, values: list[bytes]) -> None:
        """See Committed."""
        self.written.update(enumerate(values, offset))

    def see(self, offset: int, value: bytes | None) -> None:
        """See Committed."""
        self.read[offset] = value


class UncleanScene:
    """Two replicas. The follower has the first `kept` batches when it dies, and leads when the leader has copied all and dies."""

    def __init__(self, seed: int, kept: int) -> None:
        self.cluster = SimulatedCluster(seed, 3, {**CONFIG, **ALONE})
        self.kept = kept
        self.leaders = Leaders(self.cluster, DATA.topic, 1)
        self.records = Records()

    def play(self) -> None:
        """Raises AssertionError when something was not as it always must be."""
        try:
            self.cluster.run(self._play())
        finally:
            self.cluster.close()

    async def _play(self) -> None:
        cluster = self.cluster
        await asyncio.gather(*(cluster.start(broker_id) for broker_id in cluster.nodes))
        await self.create([0, 1])
        await self.write("first", self.kept)
        former = self.leader()
        await self.until(lambda: former.log.high_watermark == self.kept, "the first batches to be replicated")
        cluster.kill(1)
        await self.until(lambda: len(former.isr) == 1, "the leader to go on alone")
        await self.write("lost", BATCHES - self.kept)
        await self.until(lambda: self.is_copied(former), "the copies")
        assert self.copies(former)[-1][1] > self.kept, "the store has none of the records that are lost"
        cluster.kill(0)
        await asyncio.sleep(2 * SESSION_TIMEOUT_S)
        await cluster.start(1)
        while not any(replica.is_leader for replica in cluster.replicas(*DATA).values()):
            await self.elect_uncleanly()
            await asyncio.sleep(0.5)
        for offset in range(self.kept, BATCHES):
            del self.records.written[offset]
        await self.write("second", BATCHES)
        await cluster.start(0)
        await self.until(lambda: len(self.leader().isr) == 2 and self.is_copied(self.leader()), "the former leader, and the copies")
        await self.read_all()
        for node in cluster.nodes.values():
            node.clock.skew_ms += TWO_HOURS_MS
        await self.until(self.is_settled, "the store to settle")
        cluster.kill(1)  # the former leader has to find the new copies, too
        await self.until(lambda: 0 in cluster.replicas(*DATA) and cluster.replicas(*DATA)[0].is_leader, "the other leader")
        await self.read_all()

    async def create(self, replicas: list[int]) -> None:
        """Creates the topic on these brokers."""
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in (TOPIC_CONFIG | ALONE).items()]
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        topic = CreatableTopic(name=DATA.topic, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=configs)
        await self.ask_controller(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=5_000))

    async def write(self, name: str, batches: int) -> None:
        """Writes batches of a record each."""
        producer = Producer(self.cluster, DATA, self.leaders, name, cast("Any", self.records), seed=1)
        producer_id = await producer._producer_id()
        for sequence in range(batches):
            await producer._send([b"%s-%d" % (name.encode(), sequence)], producer_id, 0, sequence)

    async def read_all(self) -> None:
        """Reads the partition from its start to its end."""
        self.records.read.clear()
        consumer = Consumer(self.cluster, DATA, self.leaders, cast("Any", self.records), seed=2)
        reading = asyncio.create_task(consumer.run())
        await self.until(lambda: reading.done() or consumer.position > max(self.records.written), "a consumer of all records")
        reading.cancel()
        assert self.records.read == self.records.written

    async def elect_uncleanly(self) -> None:
        """As `kafka-leader-election.sh --election-type unclean` does."""
        topics = [TopicPartitions(topic=DATA.topic, partitions=[DATA.partition])]
        await self.ask_controller(
            ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=topics, timeout_ms=5_000)
        )

    async def ask_controller(self, key: ApiKey, version: int, request: Any) -> None:
        """Sends a request to the controller."""
        controller = next(broker.services.broker_id for broker in self.cluster.brokers() if broker.controller.is_active)
        await self.cluster.client(controller).request(key, version, request, timeout_ms=10_000)

    def leader(self) -> Partition:
        """The replica that leads."""
        return next(replica for replica in self.cluster.replicas(*DATA).values() if replica.is_leader)

    def is_copied(self, leader: Partition) -> bool:
        """Tells if all closed segments are in the store, and none of them is here."""
        log = leader.log
        assert log.tier is not None
        active = log.segments.active.base_offset
        return log.tier.copied.offset + 1 == active and log.local_log_start_offset == active

    def copies(self, leader: Partition) -> list[tuple[int, int]]:
        """The offsets of finished copies."""
        metadata = self.cluster.objects.metadata_of(leader.broker_id)
        assert metadata is not None
        entries = metadata.all_entries(TopicIdPartition(leader.log.topic_id, *DATA))
        return sorted((each.start_offset, each.end_offset) for each in entries if each.state is SegmentState.COPY_SEGMENT_FINISHED)

    def is_settled(self) -> bool:
        """Tells if each object belongs to a finished copy."""
        return len(self.cluster.objects.parts) == len(self.copies(self.leader()))

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, but not for ever."""
        deadline = self.cluster.loop.time() + PATIENCE_S
        while not condition():
            assert self.cluster.loop.time() < deadline, f"waited {PATIENCE_S:.0f} virtual seconds for {what}"
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(20) if "OTTLA_SOAK" in os.environ else (7,))
@pytest.mark.parametrize("kept", [1, 8, 17, 26])
def test_records_that_an_unclean_election_loses_are_not_read_from_the_store(seed: int, kept: int) -> None:
    UncleanScene(seed, kept).play()
