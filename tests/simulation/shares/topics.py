"""Fills topics of share groups in a simulated cluster: one that grows, and one that is deleted and made anew under its name."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.schema.message import Message
from ottla.replication.ports.peer import PeerUnavailable
from tests.simulation.administration import REPLICAS, TOPIC_TIMEOUT_MS
from tests.simulation.clients import PRODUCE_TIMEOUT_MS, Client

BATCHES_PER_S: Final = 3.0
MOST_RECORDS: Final = 3
PAUSE_S: Final = 0.2
PARTITIONS: Final = 2
"""Of a topic that is made anew."""


class Filler(Client):
    """Writes to all partitions of a topic. Nobody counts the records: those that are committed in the end are to be delivered."""

    stopping = False

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(BATCHES_PER_S))
            await self.write()

    async def write(self) -> None:
        """One batch to any partition that has a leader."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        metadata = await self._ask_any(ApiKey.METADATA, 12, request)
        (topic,) = cast("MetadataResponse", metadata).topics if metadata is not None else (None,)
        led = [each for each in topic.partitions if each.leader_id >= 0] if topic is not None else []
        if not led:
            return
        partition = self.random.choice(led)
        count = self.random.randint(1, MOST_RECORDS)
        values = [self.random.randbytes(8).hex().encode() for _ in range(count)]
        batch = build_batch([Record(at, self.cluster.clock.now_ms(), None, value) for at, value in enumerate(values)])
        data = [PartitionProduceData(index=partition.partition_index, records=memoryview(batch))]
        produce = ProduceRequest(
            acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[TopicProduceData(name=self.topic, partition_data=data)]
        )
        try:
            await self.ask(partition.leader_id, ApiKey.PRODUCE, 11, produce)
        except PeerUnavailable:
            return

    async def _ask_any(self, key: ApiKey, version: int, request: Message) -> Message | None:
        try:
            return await self.ask(self.random.choice(list(self.cluster.nodes)), key, version, request)
        except PeerUnavailable:
            return None


class Phoenix(Filler):
    """Makes its topic, writes to it, deletes it, and makes it anew. When it stops, the topic is there."""

    births = 0

    async def run(self) -> None:
        """See Filler."""
        while not self.stopping:
            await self._make()
            for _ in range(self.random.randint(3, 25)):
                await asyncio.sleep(self.random.expovariate(BATCHES_PER_S))
                await self.write()
            if not self.stopping:
                await self._delete()
        is_there = False
        while not is_there:
            await asyncio.sleep(PAUSE_S)
            is_there = await self._make()

    async def _make(self) -> bool:
        topic = CreatableTopic(name=self.topic, num_partitions=PARTITIONS, replication_factor=REPLICAS)
        answer = await self._ask_controller(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=TOPIC_TIMEOUT_MS))
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else cast("CreateTopicsResponse", answer).topics[0].error_code
        self.births += code == ErrorCode.NONE
        return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=self.topic)], timeout_ms=TOPIC_TIMEOUT_MS)
        await self._ask_controller(ApiKey.DELETE_TOPICS, 6, request)

    async def _ask_controller(self, key: ApiKey, version: int, request: Message) -> Message | None:
        metadata = await self._ask_any(ApiKey.METADATA, 12, MetadataRequest(topics=[], allow_auto_topic_creation=False))
        controller = -1 if metadata is None else cast("MetadataResponse", metadata).controller_id
        try:
            return None if controller < 0 else await self.ask(controller, key, version, request)
        except PeerUnavailable:
            return None
