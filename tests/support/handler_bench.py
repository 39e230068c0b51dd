"""Runs a dispatcher over replicas in memory, from a frame to its answer, without sockets; the test advances time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from ottla.broker.cluster.features import FinalizedFeatures
from ottla.broker.fetching.fetch_sessions import FetchSessionCache
from ottla.broker.handlers.table import SERVED
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Control, Part, Pending
from ottla.broker.request.expansion import Expansion
from ottla.broker.request.first_metadata import FirstMetadata
from ottla.broker.request.listed_apis import ListedApis
from ottla.broker.request.refused_records import RefusedRecords
from ottla.broker.request.running import RunningRequests
from ottla.broker.security.authorizer import AllowAll
from ottla.broker.serving.dispatch import Dispatcher
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.schema.message import Message
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.segment.converted_region import ConvertedRegion
from ottla.storage.segment.file_region import FileRegion
from tests.support.batches import a_batch
from tests.support.connections import ClientConnection
from tests.support.golden_replay import decode, request_frame
from tests.support.pauses import at_once, no_pause_waits
from tests.support.replicas import TOPIC, TOPIC_ID, Replicas, brokers, metadata
from tests.support.services import services_with
from tests.support.timers import FakeTime

_opened: ContextVar[list[HandlerBench]] = ContextVar("opened")
"""The benches of the running test of `on_a_loop`, which closes them."""


class HandlerBench:
    """A dispatcher and everything behind it. To be made on a running loop: see `on_a_loop`."""

    def __init__(self, filesystem: FileSystem | None = None, **topic_config: str) -> None:
        self.replicas = Replicas(filesystem, **topic_config)
        self.time = FakeTime()
        self.connection = ClientConnection()
        self.features = FinalizedFeatures(MemoryStore(MemoryEnsemble(self.replicas.clock)), lambda: None)
        numbers = iter(range(1, 1000))
        wheel = TimingWheel(self.time.clock, self.time.call_later)
        workers, running = ThreadPoolExecutor(1), RunningRequests()
        services = self.services = services_with(
            broker_id=0,
            cluster_id="a cluster",
            features=self.features,
            listed=ListedApis(SERVED, self.features.level),
            config=self.replicas.disks.broker,
            clock=self.replicas.clock,
            metadata=self.replicas.cluster,
            replica_manager=self.replicas.manager,
            log_manager=self.replicas.logs,
            authorizer=AllowAll(),
            metadata_waits=MetadataWaits(running.on_wait),
            fetch_sessions=FetchSessionCache(10, lambda bits: next(numbers)),
            refused_records=RefusedRecords(),
            produce_purgatory=Purgatory("Produce", wheel),
            fetch_purgatory=Purgatory("Fetch", wheel),
            remote_fetch_purgatory=Purgatory("RemoteFetch", wheel),
            delete_records_purgatory=Purgatory("DeleteRecords", wheel),
            error_counts={},
            fetch_max_bytes=55 * 1024 * 1024,
            workers=workers,
            expansion=Expansion(self.replicas.disks.broker, workers),
            running=running,
        )
        waits = services.administration.metadata_waits
        services.cluster.first_metadata = FirstMetadata(self.replicas.cluster, waits, self.replicas.manager)
        services.cluster.first_metadata.has_no_topics = True
        no_pause_waits()
        self.dispatcher = Dispatcher(services)
        _opened.get([]).append(self)

    def know(self, **leaders: int) -> None:
        """The cluster's metadata has the topic: `p0=1` says that broker 1 leads its partition 0."""
        at_once(
            self.replicas.manager.on_update_metadata(
                UpdateMetadataRequest(
                    controller_epoch=1, live_brokers=brokers(0, 1, 2), topic_states=[metadata(TOPIC, TOPIC_ID, **leaders)]
                )
            )
        )

    def raw(self, frame: bytes) -> Answer:
        """The answer to a frame without its length."""
        return self.dispatcher.handle(memoryview(bytearray(frame)), self.connection)  # type: ignore[arg-type]  # all it needs of one

    def ask(self, request: Message, key: ApiKey, version: int, client_id: str = "test") -> Asking:
        """Send a request."""
        return Asking(self.raw(request_frame(request, key, version, client_id)[4:]), key, version)

    def produce(self, *batches: bytes | bytearray | None, acks: int = -1, version: int = 9, topic: str = TOPIC, **more: Any) -> Asking:
        """Produce these batches to partitions 0, 1, and so on."""
        data = [
            PartitionProduceData(index=i, records=None if each is None else bytes(each)) for i, each in enumerate(batches or (a_batch(),))
        ]
        client_id = more.pop("client_id", "test")
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)], **more)
        return self.ask(request, ApiKey.PRODUCE, version, client_id)

    def fetch(
        self,
        *offsets: int,
        version: int = 16,
        topic_id: bytes = TOPIC_ID,
        max_wait_ms: int = 500,
        partition_max_bytes: int = 1 << 20,
        max_bytes: int = 1 << 30,
        **more: Any,
    ) -> Asking:
        """Fetch partitions 0, 1, and so on from these offsets."""
        epoch = more.pop("leader_epoch", -1)
        partitions = [
            FetchPartition(
                partition=i, fetch_offset=offset, partition_max_bytes=partition_max_bytes, current_leader_epoch=epoch, last_fetched_epoch=-1
            )
            for i, offset in enumerate(offsets)
        ]
        topics = [FetchTopic(topic=TOPIC if version < 13 else "", topic_id=topic_id if version >= 13 else bytes(16), partitions=partitions)]
        more.setdefault("session_epoch", -1)
        more.setdefault("min_bytes", 1)
        if version >= 3:
            more["max_bytes"] = max_bytes
        request = FetchRequest(max_wait_ms=max_wait_ms, topics=topics if offsets else [], **more)
        return self.ask(request, ApiKey.FETCH, version)


class Asking:
    """A request that was sent, and its answer once there is one."""

    def __init__(self, answer: Answer, key: ApiKey, version: int) -> None:
        self._answer = answer
        self._key = key
        self._version = version
        self._bytes: bytes | None = None  # parts that are converted can be read once

    @property
    def waits(self) -> bool:
        """Whether there is no answer yet."""
        return isinstance(self._answer, Pending) and not self._answer.completed

    @property
    def pending(self) -> Pending:
        """The Pending that it was answered with."""
        assert isinstance(self._answer, Pending)
        return self._answer

    @property
    def control(self) -> Control | None:
        """CLOSE or NO_RESPONSE; None for a response."""
        answer = self._answer.answer if isinstance(self._answer, Pending) else self._answer
        return answer if answer in (CLOSE, NO_RESPONSE) else None

    @property
    def parts(self) -> list[Part]:
        """The answer as the connection gets it: bytes, and regions of files."""
        assert not self.waits
        answer = self._answer.answer if isinstance(self._answer, Pending) else self._answer
        assert not isinstance(answer, Control), answer
        return answer if isinstance(answer, list) else [answer]

    @property
    def response(self) -> Any:
        """The decoded response."""
        parts = self.parts
        if self._bytes is None:
            self._bytes = b"".join(content(part) for part in parts)
        return decode(self._bytes, self._key, self._version)

    @property
    def produced(self) -> list[PartitionProduceResponse]:
        """The partitions of a Produce response."""
        return [partition for topic in self.response.responses for partition in topic.partition_responses]

    @property
    def fetched(self) -> list[PartitionData]:
        """The partitions of a Fetch response."""
        return [partition for topic in self.response.responses for partition in topic.partitions]


def content(part: Part) -> bytes:
    """The bytes that are sent of a part."""
    if isinstance(part, FileRegion):
        return part.read()
    if not isinstance(part, ConvertedRegion):
        return bytes(part)
    pieces = [part.take_begun()]
    while len(part):
        pieces.append(part.next_piece())
        part.report()
    return b"".join(pieces)


def on_a_loop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Makes a test of a scenario: it is run on a loop, for so long at most that the test fails before pytest ends it."""

    async def run() -> None:
        opened = _opened.set([])
        try:
            await asyncio.wait_for(scenario(), 45)
        finally:  # a cancelled request would let the next one begin, on a loop that ends
            for bench in _opened.get():
                await bench.dispatcher.close()
            _opened.reset(opened)

    def test() -> None:
        asyncio.run(run())

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test
