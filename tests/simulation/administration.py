"""Who administers a simulated cluster while it suffers: moves partitions, gives that up, elects, makes, grows, drops topics."""

from __future__ import annotations

import asyncio
from typing import cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.peer import PeerUnavailable
from tests.simulation.clients import Client
from tests.simulation.cluster import SimulatedCluster

REPLICAS = 3
TOPIC_TIMEOUT_MS = 2000
KEPT_GROWS = 0.5
"""How likely the topic that grows is the one that is kept."""
GROWN_WHILE_DROPPED = 0.3
"""How likely some topic, perhaps that one, gets more partitions while one is dropped."""


class Administrator(Client):
    """Asks whoever is said to be the controller; what becomes of it, it does not wait for. `made` are the topics that must be there at the
    end with so many partitions at least, `dropped` those that must be gone."""

    def __init__(self, cluster: SimulatedCluster, moved: list[TopicPartition], kept: str, seed: int) -> None:
        """`moved` are the partitions that get other replicas and leaders. The topic `kept` grows often, and is not dropped."""
        super().__init__(cluster, moved[0].topic, seed)
        self.stopping = False
        self.made: dict[str, int] = {}
        self.dropped: set[str] = set()
        self.uncertain: set[str] = set()
        self.orders = 0
        self._moved = moved
        self._kept = kept

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(0.7))
            order = self.random.choice(
                [self._move, self._move, self._give_up, self._elect, self._make_topic, self._grow_topic, self._drop_topic]
            )
            self.orders += 1
            await order()

    async def _ask_controller(self, key: ApiKey, version: int, request: Message) -> Message | None:
        try:
            asked = self.random.choice(list(self.cluster.nodes))
            metadata = await self.ask(asked, ApiKey.METADATA, 12, MetadataRequest(topics=[], allow_auto_topic_creation=False))
            controller = cast("MetadataResponse", metadata).controller_id
            return None if controller < 0 else await self.ask(controller, key, version, request)
        except PeerUnavailable:
            return None

    async def _move(self) -> None:
        brokers = self.random.sample(list(self.cluster.nodes), REPLICAS)
        await self._reassign(brokers)

    async def _give_up(self) -> None:
        await self._reassign(None)

    async def _reassign(self, brokers: list[int] | None) -> None:
        topic, index = self.random.choice(self._moved)
        topics = [ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=brokers)])]
        await self._ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, AlterPartitionReassignmentsRequest(topics=topics))

    async def _elect(self) -> None:
        indexes: dict[str, list[int]] = {}
        for topic, index in self._moved:
            indexes.setdefault(topic, []).append(index)
        topics = [TopicPartitions(topic=topic, partitions=found) for topic, found in indexes.items()]
        await self._ask_controller(ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(topic_partitions=topics, timeout_ms=1000))

    async def _make_topic(self) -> None:
        name = f"side-{self.orders}"
        self.uncertain.add(name)
        count = self.random.randint(1, 3)
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=REPLICAS)
        answer = await self._ask_controller(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=TOPIC_TIMEOUT_MS))
        if answer is not None and cast("CreateTopicsResponse", answer).topics[0].error_code == ErrorCode.NONE:
            self.uncertain.discard(name)
            self.made[name] = count

    async def _grow_topic(self) -> None:
        """Also one that is being dropped, or is perhaps not there."""
        if not (names := sorted({*self.made, *self.uncertain, *self.dropped})):
            return
        name = self._kept if self._kept in self.made and self.random.random() < KEPT_GROWS else self.random.choice(names)
        count = self.made.get(name, 3) + self.random.randint(1, 2)
        topic = CreatePartitionsTopic(name=name, count=count)
        answer = await self._ask_controller(
            ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[topic], timeout_ms=TOPIC_TIMEOUT_MS)
        )
        if name in self.made and answer is not None and cast("CreatePartitionsResponse", answer).results[0].error_code == ErrorCode.NONE:
            self.made[name] = count

    async def _drop_topic(self) -> None:
        if not (names := sorted(self.made.keys() - {self._kept})):
            return
        name = self.random.choice(names)
        del self.made[name]
        self.uncertain.add(name)
        if self.random.random() < GROWN_WHILE_DROPPED:
            await asyncio.gather(self._delete(name), self._grow_topic())
        else:
            await self._delete(name)

    async def _delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TOPIC_TIMEOUT_MS)
        answer = await self._ask_controller(ApiKey.DELETE_TOPICS, 6, request)
        if answer is not None and cast("DeleteTopicsResponse", answer).responses[0].error_code == ErrorCode.NONE:
            self.uncertain.discard(name)
            self.dropped.add(name)
