"""Plays the brokers that lead `__remote_log_metadata`, for readers and writers of the topic. Everything is in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from ottla.broker.remote.metadata.peers import MetadataPeers
from ottla.broker.remote.metadata.reader import MetadataReader
from ottla.broker.remote.metadata.snapshot_files import SnapshotFiles
from ottla.broker.remote.metadata.topic import MetadataTopic
from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
from ottla.broker.remote.metadata.writer import MetadataWriter
from ottla.config.remote_metadata import MetadataSettings
from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import InvalidReplicationFactor
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import fetch, list_offsets, produce
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState
from ottla.protocol.records.batch import HEADER_STRUCT, parse_header
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.schema.message import Message
from ottla.replication.ports.cluster import EndPoint, LiveBroker, MetadataCache, TopicImage
from ottla.replication.ports.peer import PeerUnavailable
from ottla.storage.remote.entries import TopicIdPartition
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from tests.support.clocks import ManualClock
from tests.support.fake_peers import Asked, FakePeers
from tests.support.filesystems import MemoryFileSystem
from tests.support.peers import until
from tests.support.remote_metadata import A_PARTITION

PARTITIONS: Final = 3
LISTENER: Final = "REPLICATION"
LOG_DIR: Final = "/data"


class PlayedTopic:
    """The topic, its brokers 1 and 2, and the faults that they shall have. `faults` are taken one by one, each by a request of its API."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.cluster = MetadataCache()
        self.peers = FakePeers(self._answer)
        self.created: list[NewTopic] = []
        self.batches: list[deque[tuple[int, bytes]]] = []
        self.ends: list[int] = []
        self.leader_epochs: list[int] = []
        self.faults: dict[ApiKey, deque[ErrorCode | Exception | Callable[[], None]]] = {key: deque() for key in ApiKey}
        self.lost_answers = 0
        """Produce requests whose records are written and whose answers are lost."""
        self.diverging: set[int] = set()
        self.refuses_creation = ""
        self._partitions = partitions
        self._written: dict[tuple[int, int, int], int] = {}
        for broker_id in (1, 2):
            endpoint = EndPoint("127.0.0.1", 9000 + broker_id, LISTENER, 0)
            self.cluster.brokers[broker_id] = LiveBroker(broker_id, {LISTENER: endpoint}, None)

    # -- the cluster -------------------------------------------------------------------------------------------------------

    def create(self, topic_id: bytes = b"a" * 16) -> PlayedTopic:
        """The topic is there, empty, led by broker 1."""
        self.batches = [deque() for _ in range(self._partitions)]
        self.ends = [0] * self._partitions
        self.leader_epochs = [0] * self._partitions
        self._written.clear()
        states = {
            index: UpdateMetadataPartitionState(topic_name=METADATA_TOPIC, partition_index=index, leader=1)
            for index in range(self._partitions)
        }
        self.cluster.topics = {METADATA_TOPIC: TopicImage(METADATA_TOPIC, topic_id, states)}
        return self

    def move(self, leader: int) -> None:
        """All partitions get another leader."""
        for state in self.cluster.topics[METADATA_TOPIC].partitions.values():
            state.leader = leader
            state.leader_epoch += 1
            self.leader_epochs[state.partition_index] = state.leader_epoch

    def append(self, index: int, batch: bytes) -> int:
        """Another broker writes a batch."""
        header = parse_header(batch)
        offset = self.ends[index]
        stamped = bytearray(batch)
        HEADER_STRUCT.pack_into(stamped, 0, *header._replace(base_offset=offset, partition_leader_epoch=self.leader_epochs[index]))
        self.batches[index].append((offset, bytes(stamped)))
        self.ends[index] += header.last_offset_delta + 1
        return offset

    def cut(self, index: int, end: int) -> None:
        """The records from an offset on are lost."""
        while self.batches[index] and self.batches[index][-1][0] >= end:
            self.batches[index].pop()
        self.ends[index] = end

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, object]:
        """The topic admin."""
        self.created += topics
        if self.refuses_creation:
            return {METADATA_TOPIC: InvalidReplicationFactor(self.refuses_creation)}
        self.create()
        return {METADATA_TOPIC: None}

    # -- requests ----------------------------------------------------------------------------------------------------------

    def _answer(self, asked: Asked) -> Message:
        faults = self.faults[asked.api_key]
        fault = faults.popleft() if faults else ErrorCode.NONE
        if callable(fault):
            fault()
            fault = ErrorCode.NONE
        if isinstance(fault, Exception):
            raise fault
        broker_id = asked.address.port - 9000
        if isinstance(asked.message, fetch.FetchRequest):
            return self._fetch(asked.message, broker_id, fault)
        if isinstance(asked.message, list_offsets.ListOffsetsRequest):
            return self._list_offsets(asked.message, broker_id, fault)
        assert isinstance(asked.message, produce.ProduceRequest)
        return self._produce(asked.message, broker_id, fault)

    def _error(self, index: int, broker_id: int, fault: ErrorCode) -> ErrorCode:
        state = self.cluster.topics[METADATA_TOPIC].partitions[index]
        return fault or (ErrorCode.NONE if state.leader == broker_id else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _start(self, index: int) -> int:
        return self.batches[index][0][0] if self.batches[index] else self.ends[index]

    def _fetch(self, request: fetch.FetchRequest, broker_id: int, fault: ErrorCode) -> Message:
        found = []
        for asked in request.topics[0].partitions:
            index, offset = asked.partition, asked.fetch_offset
            code = self._error(index, broker_id, fault)
            data = fetch.PartitionData(partition_index=index, error_code=code, high_watermark=self.ends[index], records=b"")
            if not code and index in self.diverging and asked.last_fetched_epoch >= 0:
                self.diverging.discard(index)
                data.diverging_epoch = fetch.EpochEndOffset(epoch=0, end_offset=0)
            elif not code and not self._start(index) <= offset <= self.ends[index]:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            elif not code:
                data.records = b"".join([batch for at, batch in self.batches[index] if at >= offset][:100])
            found.append(data)
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=found)])

    def _list_offsets(self, request: list_offsets.ListOffsetsRequest, broker_id: int, fault: ErrorCode) -> Message:
        found = []
        for asked in request.topics[0].partitions:
            index = asked.partition_index
            offset = self.ends[index] if asked.timestamp == -1 else self._start(index)
            code = self._error(index, broker_id, fault)
            found.append(list_offsets.ListOffsetsPartitionResponse(partition_index=index, error_code=code, offset=-1 if code else offset))
        return list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse(name=METADATA_TOPIC, partitions=found)])

    def _produce(self, request: produce.ProduceRequest, broker_id: int, fault: ErrorCode) -> Message:
        assert request.acks == -1
        asked = request.topic_data[0].partition_data[0]
        records = asked.records
        assert records is not None
        code = self._error(asked.index, broker_id, fault)
        offset = -1
        if not code:
            header = parse_header(bytes(records))
            written = asked.index, header.producer_id, header.base_sequence
            if written not in self._written:
                self._written[written] = self.append(asked.index, bytes(records))
            offset = self._written[written]
            if self.lost_answers:
                self.lost_answers -= 1
                raise PeerUnavailable("the answer is lost")
        answer = produce.PartitionProduceResponse(index=asked.index, error_code=code, base_offset=offset)
        return produce.ProduceResponse(responses=[produce.TopicProduceResponse(name=METADATA_TOPIC, partition_responses=[answer])])


class PlayedMetadata(TopicMetadata):
    """The metadata of a broker that uses a played topic."""

    def __init__(
        self,
        topic: PlayedTopic,
        filesystem: MemoryFileSystem | None = None,
        *,
        consume_wait_ms: int = 20_000,
        while_loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.filesystem = filesystem or MemoryFileSystem()
        self.filesystem.make_directory(LOG_DIR)
        self.workers = ThreadPoolExecutor(1)
        self.ids = 0
        settings = MetadataSettings(PARTITIONS, 1, -1, consume_wait_ms, 1, LISTENER, ())
        peers = MetadataPeers(topic.peers, topic.cluster, LISTENER, 1)
        found = MetadataTopic(settings, topic.cluster, topic)
        clock = ManualClock()
        self.snapshots = SnapshotFiles(LOG_DIR, self.filesystem, self.workers, clock, "a cluster", PARTITIONS)
        reader = MetadataReader(PARTITIONS, topic.cluster, found, peers, self.snapshots, while_loading)
        super().__init__(reader, MetadataWriter(topic.cluster, peers, clock, self._next_producer_id), consume_wait_ms)

    async def _next_producer_id(self) -> int:
        self.ids += 1
        await asyncio.sleep(0)
        return self.ids

    async def close(self) -> None:
        """As TopicMetadata, and ends the threads."""
        await super().close()
        self.workers.shutdown()


def run(
    story: Callable[[PlayedMetadata], Awaitable[None]], topic: PlayedTopic, filesystem: MemoryFileSystem | None = None, **settings: Any
) -> None:
    """Runs a story with the metadata of a broker, for half a minute at most."""

    async def whole() -> None:
        async with asyncio.timeout(30):
            metadata = PlayedMetadata(topic, filesystem, **settings)
            metadata.start()
            try:
                await story(metadata)
            finally:
                await metadata.close()

    asyncio.run(whole())


async def ready(metadata: PlayedMetadata, *partitions: TopicIdPartition) -> None:
    """Follows partitions, and waits for their entries."""
    for partition in partitions or (A_PARTITION,):
        metadata.follow(partition)
    await until(lambda: all(metadata.is_ready(partition) for partition in partitions or (A_PARTITION,)))


def write_elsewhere(topic: PlayedTopic, metadata: PlayedMetadata, *values: bytes, partition: TopicIdPartition = A_PARTITION) -> None:
    """Another broker writes records of a user partition."""
    for value in values:
        topic.append(metadata.reader.index_of(partition), bytes(build_batch([Record(0, 5, None, value)])))
