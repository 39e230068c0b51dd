"""Producers and consumers of a simulated cluster. What they are told and what they see is compared with what was committed (`committed`).

The producers are idempotent and never give up: a record is sent until it is acknowledged. So at the end every record is in the log
once, and in each producer's order.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record, iter_records
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.peer import Peer, PeerUnavailable
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.committed import Committed

TIMEOUT_MS = 1500
PRODUCE_TIMEOUT_MS = 1000
BACKOFF_S = 0.1
BATCHES_PER_S = 3
METADATA_TIMEOUT_MS = 300
MAX_EPOCH = 1000
GROUP = 0
TRANSACTIONAL_ID = 1
"""What FindCoordinator can ask for."""
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


class Leaders:
    """What the outside world believes of one topic: from Metadata, of whoever answers. Shared by the clients, as those of a process do."""

    def __init__(self, cluster: SimulatedCluster, topic: str, seed: int) -> None:
        self.topic_id = bytes(16)
        self._cluster = cluster
        self._topic = topic
        self._random = Random(seed)
        self._peers = {broker_id: cluster.client(broker_id) for broker_id in cluster.nodes}
        self._known: dict[int, int] = {}
        self._asking: asyncio.Future[None] | None = None

    async def leader(self, partition: int) -> int:
        """Whoever is said to lead it; asks until somebody is."""
        while partition not in self._known:
            if self._asking is None:
                self._asking = asyncio.ensure_future(self._ask())
            await asyncio.shield(self._asking)
        return self._known[partition]

    def forget(self, partition: int, leader: int) -> None:
        """The leader was none."""
        if self._known.get(partition) == leader:
            del self._known[partition]

    async def _ask(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        await asyncio.sleep(BACKOFF_S * self._random.random())
        broker_id = self._random.choice(list(self._peers))
        try:
            answer = await self._peers[broker_id].request(ApiKey.METADATA, 12, request, timeout_ms=METADATA_TIMEOUT_MS)
        except PeerUnavailable:
            answer = MetadataResponse()
        for topic in cast("MetadataResponse", answer).topics:
            for found in topic.partitions:
                if topic.error_code == ErrorCode.NONE and found.leader_id >= 0:
                    self.topic_id = topic.topic_id
                    self._known.setdefault(found.partition_index, found.leader_id)
        self._asking = None


class Client:
    """Whoever asks brokers."""

    def __init__(self, cluster: SimulatedCluster, topic: str, seed: int) -> None:
        self.cluster = cluster
        self.topic = topic
        self.random = Random(seed)
        self._peers: dict[int, Peer] = {}

    async def ask(self, broker_id: int, key: ApiKey, version: int, request: Message, timeout_ms: int = TIMEOUT_MS) -> Message:
        """Raises PeerUnavailable."""
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = self.cluster.client(broker_id)
        return await peer.request(key, version, request, timeout_ms=timeout_ms)


class CoordinatorClient(Client):
    """Finds the coordinator of a group or a transactional id, from whichever broker answers."""

    def __init__(self, cluster: SimulatedCluster, topic: str, key_type: int, key: str, seed: int) -> None:
        super().__init__(cluster, topic, seed)
        self.coordinator: int | None = None
        """The broker that answered last, or is to be asked next."""
        self._key_type = key_type
        self._key = key

    async def ask_coordinator(self, key: ApiKey, version: int, request: Message) -> Message | None:
        """None when nobody answers, or nobody is said to be it."""
        try:
            while self.coordinator is None:
                find = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])
                answer = await self.ask(self.random.choice(list(self.cluster.nodes)), ApiKey.FIND_COORDINATOR, 4, find)
                (found,) = cast("FindCoordinatorResponse", answer).coordinators
                if found.error_code != ErrorCode.NONE:
                    await asyncio.sleep(BACKOFF_S)
                    return None
                self.coordinator = found.node_id
            return await self.ask(self.coordinator, key, version, request)
        except PeerUnavailable:
            self.coordinator = None
            return None

    def forget_coordinator(self) -> None:
        """It is none, or not any more."""
        self.coordinator = None


class PartitionClient(Client):
    """Whoever has to do with one partition."""

    def __init__(self, cluster: SimulatedCluster, partition: TopicPartition, leaders: Leaders, committed: Committed, seed: int) -> None:
        super().__init__(cluster, partition.topic, seed)
        self.partition = partition.partition
        self.committed = committed
        self.leaders = leaders

    async def again(self, leader: int) -> None:
        """The leader was none: wait a little before another is asked."""
        self.leaders.forget(self.partition, leader)
        await asyncio.sleep(BACKOFF_S * (0.5 + self.random.random()))


class Producer(PartitionClient):
    """Sends numbered records to one partition, one batch at a time."""

    def __init__(
        self, cluster: SimulatedCluster, partition: TopicPartition, leaders: Leaders, name: str, committed: Committed, seed: int
    ) -> None:
        super().__init__(cluster, partition, leaders, committed, seed)
        self.name = name
        self.sent = 0
        self.stopping = False

    async def run(self) -> None:
        """Until `stopping`. Now and then it takes a new epoch, and what it sends in the old one then is refused for ever."""
        producer_id = await self._producer_id()
        epoch = sequence = 0
        while not self.stopping:
            values = [f"{self.name}-{self.sent + i}".encode() for i in range(self.random.randint(1, 4))]
            await self._send(values, producer_id, epoch, sequence)
            sequence += len(values)
            if self.random.random() < 0.05 and epoch < MAX_EPOCH:
                await self._send([f"{self.name}-{self.sent}".encode()], producer_id, epoch + 1, 0)
                await self._try_to_send_late(producer_id, epoch, sequence)
                epoch, sequence = epoch + 1, 1
            await asyncio.sleep(self.random.expovariate(BATCHES_PER_S))

    async def _send(self, values: list[bytes], producer_id: int, epoch: int, sequence: int) -> None:
        batch = self._batch(values, producer_id, epoch, sequence)
        while (result := await self._deliver(batch)).error_code:
            code = ErrorCode.of(result.error_code)
            assert code not in NEVER, f"{self.name} at {self.sent}: {code.name}"
        self.committed.acknowledge(result.base_offset, values)
        self.sent += len(values)

    async def _try_to_send_late(self, producer_id: int, epoch: int, sequence: int) -> None:
        """What a producer's older epoch sends: refused, whoever leads by now."""
        batch = self._batch([b"too late"], producer_id, epoch, sequence)
        while (code := (await self._deliver(batch)).error_code) != ErrorCode.INVALID_PRODUCER_EPOCH:
            said = f"{self.name}: a batch of producer epoch {epoch}, after one of {epoch + 1}, is answered with {ErrorCode.of(code).name}"
            assert code not in (ErrorCode.NONE, *NEVER), said

    def _batch(self, values: list[bytes], producer_id: int, epoch: int, sequence: int) -> bytes:
        records = [Record(i, self.cluster.clock.now_ms(), None, value) for i, value in enumerate(values)]
        return bytes(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))

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

    async def _deliver(self, batch: bytes) -> PartitionProduceResponse:
        """Until somebody answers."""
        data = [TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=self.partition, records=memoryview(batch))])]
        while True:
            leader = await self.leaders.leader(self.partition)
            try:
                answer = await self.ask(leader, ApiKey.PRODUCE, 11, ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=data))
            except PeerUnavailable:
                await self.again(leader)
                continue
            (result,) = cast("ProduceResponse", answer).responses[0].partition_responses
            if result.error_code:
                await self.again(leader)
            return result


class Consumer(PartitionClient):
    """Reads one partition from its beginning, one committed offset after the other."""

    isolation_level = 0

    def __init__(self, cluster: SimulatedCluster, partition: TopicPartition, leaders: Leaders, committed: Committed, seed: int) -> None:
        super().__init__(cluster, partition, leaders, committed, seed)
        self.position = 0

    async def run(self) -> None:
        """For ever."""
        while True:
            leader = await self.leaders.leader(self.partition)
            asked = FetchPartition(partition=self.partition, fetch_offset=self.position, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=self.isolation_level,
                topics=[FetchTopic(topic_id=self.leaders.topic_id, partitions=[asked])],
            )
            try:
                answer = cast("FetchResponse", await self.ask(leader, ApiKey.FETCH, 17, request))
            except PeerUnavailable:
                await self.again(leader)
                continue
            codes = [answer.error_code, *(partition.error_code for topic in answer.responses for partition in topic.partitions)]
            for code in codes:
                assert code not in NEVER, f"a consumer at {self.position} of {self.partition}: {ErrorCode.of(code).name} from {leader}"
            if any(codes):
                self.on_error(leader, codes)
                await self.again(leader)
                continue
            for topic in answer.responses:
                for partition in topic.partitions:
                    self.take(partition)

    def on_error(self, leader: int, codes: list[int]) -> None:
        """A leader refuses the fetch, which is then repeated."""

    def take(self, answer: PartitionData) -> None:
        """Read what a leader sent."""
        data = bytes(answer.records or b"")
        for at, header in iter_batches(data):
            for record in iter_records(data, at, header):
                if record.offset < self.position:
                    continue  # a batch is sent whole
                assert record.offset == self.position, f"partition {self.partition}: {record.offset} comes after {self.position - 1}"
                self.position += 1
                self.committed.see(record.offset, record.value)
