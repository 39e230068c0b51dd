"""Producers and consumers of a simulated cluster, and the history that they write: what was acknowledged where, and what was seen where.

The producers are idempotent and never give up: a record is sent until it is acknowledged. So at the end every record is in the log
once, and in each producer's order.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.record_builder import build_batch
from protocol.record_reader import Record, iter_records
from protocol.records import iter_batches
from protocol.schema import Message
from replication.peer import Peer, PeerUnavailable
from tests.simulation.cluster import SimulatedCluster

TIMEOUT_MS = 3000
BACKOFF_S = 0.1
NEVER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors that no fault explains. A gap in the sequence or an offset out of range may be the word of a leader that does not know yet that it
is none: it is asked again, and if it is the truth, the story does not end."""


class History:
    """What is true for ever. A contradiction is an AssertionError."""

    def __init__(self) -> None:
        self.records: dict[int, dict[int, bytes]] = {}
        """partition -> offset -> value, as acknowledged or as seen by a consumer."""
        self.acknowledged: dict[int, dict[bytes, int]] = {}
        self.seen = 0

    def acknowledge(self, partition: int, offset: int, value: bytes) -> None:
        """A producer was told that its record is at this offset."""
        self._know(partition, offset, value, "acknowledged")
        known = self.acknowledged.setdefault(partition, {})
        assert known.setdefault(value, offset) == offset, f"{value!r} was acknowledged at {known[value]} and at {offset} of {partition}"

    def see(self, partition: int, offset: int, value: bytes) -> None:
        """A consumer read this."""
        self.seen += 1
        self._know(partition, offset, value, "read")

    def _know(self, partition: int, offset: int, value: bytes, how: str) -> None:
        known = self.records.setdefault(partition, {}).setdefault(offset, value)
        assert known == value, f"offset {offset} of partition {partition} was {known!r} once; {value!r} is {how} there now"

    @property
    def acknowledgements(self) -> int:
        """How many records were acknowledged."""
        return sum(len(values) for values in self.acknowledged.values())


class Client:
    """Finds leaders by Metadata, from whoever answers."""

    def __init__(self, cluster: SimulatedCluster, topic: str, seed: int) -> None:
        self.cluster = cluster
        self.topic = topic
        self.random = Random(seed)
        self.topic_id = bytes(16)
        self._leaders: dict[int, int] = {}
        self._peers: dict[int, Peer] = {}

    async def ask(self, broker_id: int, key: ApiKey, version: int, request: Message) -> Message:
        """Raises PeerUnavailable."""
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = self.cluster.client(broker_id)
        return await peer.request(key, version, request, timeout_ms=TIMEOUT_MS)

    async def leader(self, partition: int) -> int:
        """Whoever is said to lead it; asks until somebody is."""
        while partition not in self._leaders:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
            try:
                answer = await self.ask(self.random.choice(list(self.cluster.nodes)), ApiKey.METADATA, 12, request)
            except PeerUnavailable:
                await asyncio.sleep(BACKOFF_S)
                continue
            for topic in cast("MetadataResponse", answer).topics:
                for found in topic.partitions:
                    if topic.error_code == ErrorCode.NONE and found.leader_id >= 0:
                        self.topic_id = topic.topic_id
                        self._leaders[found.partition_index] = found.leader_id
            if partition not in self._leaders:
                await asyncio.sleep(BACKOFF_S)
        return self._leaders[partition]

    async def forget(self, partition: int) -> None:
        """The leader was none."""
        self._leaders.pop(partition, None)
        await asyncio.sleep(BACKOFF_S * self.random.random())


class Producer(Client):
    """Sends numbered records to one partition, one batch at a time."""

    def __init__(self, cluster: SimulatedCluster, topic: str, partition: int, name: str, history: History, seed: int) -> None:
        super().__init__(cluster, topic, seed)
        self.partition = partition
        self.name = name
        self.history = history
        self.sent = 0
        self.stopping = False

    async def run(self) -> None:
        """Until `stopping`."""
        producer_id = await self._producer_id()
        sequence = 0
        while not self.stopping:
            values = [f"{self.name}-{sequence + i}".encode() for i in range(self.random.randint(1, 4))]
            batch = build_batch(
                [Record(i, self.cluster.clock.now_ms(), None, value) for i, value in enumerate(values)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            offset = await self._deliver(bytes(batch))
            for i, value in enumerate(values):
                self.history.acknowledge(self.partition, offset + i, value)
            sequence += len(values)
            self.sent = sequence
            await asyncio.sleep(self.random.expovariate(20))

    async def _producer_id(self) -> int:
        while True:
            broker_id = self.random.choice(list(self.cluster.nodes))
            try:
                answer = await self.ask(
                    broker_id, ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
            except PeerUnavailable:
                answer = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            found = cast("InitProducerIdResponse", answer)
            if found.error_code == ErrorCode.NONE:
                return found.producer_id
            await asyncio.sleep(BACKOFF_S)

    async def _deliver(self, batch: bytes) -> int:
        """Until it is acknowledged; its offset."""
        while True:
            leader = await self.leader(self.partition)
            data = [
                TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=self.partition, records=memoryview(batch))])
            ]
            try:
                answer = await self.ask(leader, ApiKey.PRODUCE, 11, ProduceRequest(acks=-1, timeout_ms=2000, topic_data=data))
            except PeerUnavailable:
                await self.forget(self.partition)
                continue
            (result,) = cast("ProduceResponse", answer).responses[0].partition_responses
            code = ErrorCode.of(result.error_code)
            if code is ErrorCode.NONE:
                return result.base_offset
            assert code not in NEVER, f"{self.name} at {self.sent}: {code.name} from broker {leader}"
            await self.forget(self.partition)


class Consumer(Client):
    """Reads one partition from its beginning, one committed offset after the other."""

    def __init__(self, cluster: SimulatedCluster, topic: str, partition: int, history: History, seed: int) -> None:
        super().__init__(cluster, topic, seed)
        self.partition = partition
        self.history = history
        self.position = 0

    async def run(self) -> None:
        """For ever."""
        while True:
            leader = await self.leader(self.partition)
            asked = FetchPartition(partition=self.partition, fetch_offset=self.position, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic_id=self.topic_id, partitions=[asked])]
            )
            try:
                answer = cast("FetchResponse", await self.ask(leader, ApiKey.FETCH, 17, request))
            except PeerUnavailable:
                await self.forget(self.partition)
                continue
            codes = [answer.error_code, *(partition.error_code for topic in answer.responses for partition in topic.partitions)]
            for code in codes:
                assert code not in NEVER, f"a consumer at {self.position} of {self.partition}: {ErrorCode.of(code).name} from {leader}"
            if any(codes):
                await self.forget(self.partition)
                continue
            for topic in answer.responses:
                for partition in topic.partitions:
                    self._read(partition.records)

    def _read(self, records: memoryview | bytes | None) -> None:
        data = bytes(records or b"")
        for at, header in iter_batches(data):
            for record in iter_records(data, at, header):
                if record.offset < self.position:
                    continue  # a batch is sent whole
                assert record.offset == self.position, f"partition {self.partition}: {record.offset} comes after {self.position - 1}"
                self.position += 1
                if record.value is not None:
                    self.history.see(self.partition, record.offset, record.value)
