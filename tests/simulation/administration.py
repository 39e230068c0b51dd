"""Who administers a simulated cluster while it suffers: moves partitions, gives moves up, orders elections, makes and drops topics; and a
group that commits offsets."""

from __future__ import annotations

import asyncio
from typing import cast

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from protocol.schema import Message
from replication.peer import PeerUnavailable
from tests.simulation.clients import BACKOFF_S, Client
from tests.simulation.cluster import SimulatedCluster

REPLICAS = 3
TOPIC_TIMEOUT_MS = 2000


class Administrator(Client):
    """Asks whoever is said to be the controller; what becomes of it, it does not wait for. `made` are the topics that must be there at the
    end, `dropped` those that must be gone."""

    def __init__(self, cluster: SimulatedCluster, topic: str, partitions: int, seed: int) -> None:
        super().__init__(cluster, topic, seed)
        self.stopping = False
        self.made: set[str] = set()
        self.dropped: set[str] = set()
        self.uncertain: set[str] = set()
        self.orders = 0
        self._partitions = partitions

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(0.7))
            order = self.random.choice([self._move, self._move, self._give_up, self._elect, self._make_topic, self._drop_topic])
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
        partition = ReassignablePartition(partition_index=self.random.randrange(self._partitions), replicas=brokers)
        topics = [ReassignableTopic(name=self.topic, partitions=[partition])]
        await self._ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, AlterPartitionReassignmentsRequest(topics=topics))

    async def _elect(self) -> None:
        topics = [TopicPartitions(topic=self.topic, partitions=list(range(self._partitions)))]
        await self._ask_controller(ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(topic_partitions=topics, timeout_ms=1000))

    async def _make_topic(self) -> None:
        name = f"side-{self.orders}"
        self.uncertain.add(name)
        topic = CreatableTopic(name=name, num_partitions=self.random.randint(1, 3), replication_factor=REPLICAS)
        answer = await self._ask_controller(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=TOPIC_TIMEOUT_MS))
        if answer is not None and cast("CreateTopicsResponse", answer).topics[0].error_code == ErrorCode.NONE:
            self.uncertain.discard(name)
            self.made.add(name)

    async def _drop_topic(self) -> None:
        if not self.made:
            return
        name = self.random.choice(sorted(self.made))
        self.made.discard(name)
        self.uncertain.add(name)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TOPIC_TIMEOUT_MS)
        answer = await self._ask_controller(ApiKey.DELETE_TOPICS, 6, request)
        if answer is not None and cast("DeleteTopicsResponse", answer).responses[0].error_code == ErrorCode.NONE:
            self.uncertain.discard(name)
            self.dropped.add(name)


class Committer(Client):
    """Commits ever greater offsets of one group. What was acknowledged is never taken back."""

    def __init__(self, cluster: SimulatedCluster, topic: str, group: str, seed: int) -> None:
        super().__init__(cluster, topic, seed)
        self.group = group
        self.stopping = False
        self.committed = -1
        self.attempted = -1
        self._coordinator: int | None = None

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(5))
            await (self.check(at_least=-1) if self.random.random() < 0.3 else self._commit())

    async def check(self, at_least: int | None = None) -> bool:
        """Whether the offset could be read; it must be one that was tried, and none before the last acknowledged one, or `at_least`.

        While things go wrong the answer may come from a coordinator that does not know yet that it is none, here as with Apache Kafka: a
        read of an offset asks nobody else.
        """
        known = self.committed if at_least is None else at_least
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=None)])
        answer = cast("OffsetFetchResponse | None", await self._ask_coordinator(ApiKey.OFFSET_FETCH, 9, request))
        if answer is None or answer.groups[0].error_code != ErrorCode.NONE:
            self._coordinator = None
            return False
        found = [partition.committed_offset for topic in answer.groups[0].topics for partition in topic.partitions]
        offset = found[0] if found else -1
        assert known <= offset <= self.attempted, f"group {self.group} has offset {offset}; {known} was acknowledged"
        return True

    async def _commit(self) -> None:
        self.attempted += 1
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.attempted, committed_metadata="")
        request = OffsetCommitRequest(group_id=self.group, topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])])
        answer = cast("OffsetCommitResponse | None", await self._ask_coordinator(ApiKey.OFFSET_COMMIT, 9, request))
        if answer is not None and answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self.committed = self.attempted
        else:
            self._coordinator = None

    async def _ask_coordinator(self, key: ApiKey, version: int, request: Message) -> Message | None:
        try:
            while self._coordinator is None:
                find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
                answer = await self.ask(self.random.choice(list(self.cluster.nodes)), ApiKey.FIND_COORDINATOR, 4, find)
                (found,) = cast("FindCoordinatorResponse", answer).coordinators
                if found.error_code != ErrorCode.NONE:
                    await asyncio.sleep(BACKOFF_S)
                    return None
                self._coordinator = found.node_id
            return await self.ask(self._coordinator, key, version, request)
        except PeerUnavailable:
            self._coordinator = None
            return None
