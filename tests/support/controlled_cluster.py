"""Surrounds a controller with parts in memory: a tree that survives restarts, brokers that record their requests, no chance."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from ottla.config.broker import BrokerConfig
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.admin.partition_growth import PartitionGrowth
from ottla.controller.admin.topic_admin import CreatedTopic, NewTopic, TopicAdmin
from ottla.controller.controller import Controller
from ottla.controller.errors import StoreError
from ottla.controller.events.isr_changes import IsrChange
from ottla.controller.registration import prepare_store
from ottla.controller.state.channels import ControlRequest, InProcessChannel
from ottla.controller.state.context import Leadership, LiveBroker
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.store.metadata_store import Children, Create, Delete, Exists, Get, Multi, Request, Result, SetData, Write
from ottla.controller.znodes.layout import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    decode_partition_state,
    decode_topic,
    partition_state_path,
    topic_path,
)
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.cluster import MetadataCache
from tests.support.clocks import ManualClock


class RecordingBroker:
    """The receiving side of a broker: keeps the requests, a real metadata cache, and the replicas that the controller assigned."""

    def __init__(self) -> None:
        self.cluster = MetadataCache()
        self.requests: list[ControlRequest] = []
        self.replicas: dict[TopicPartition, tuple[int, int]] = {}
        """Leader and leader epoch of each hosted partition."""
        self.error_of: Callable[[TopicPartition], int] = lambda _: 0

    async def on_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        self.requests.append(request)
        topics = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                error = self.error_of(partition)
                if not error:
                    self.replicas[partition] = (state.leader, state.leader_epoch)
                errors.append(
                    LeaderAndIsrPartitionError(topic_name=partition.topic, partition_index=state.partition_index, error_code=error)
                )
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(topics=topics)

    async def on_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        self.requests.append(request)
        self.cluster.update(request)
        return UpdateMetadataResponse()

    async def on_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        self.requests.append(request)
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                error = self.error_of(partition)
                if not error:
                    self.replicas.pop(partition, None)
                errors.append(StopReplicaPartitionError(topic_name=partition.topic, partition_index=partition.partition, error_code=error))
        return StopReplicaResponse(partition_errors=errors)


class Crash(ConnectionError):
    """The store went away in the middle: what a killed process would never have seen an answer to."""


class RecordingStore(MemoryStore):
    """A store that keeps every successful write in order, and can be made to break down after some more of them."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        super().__init__(ensemble)
        self.written: list[tuple[Write, ...]] = []
        self.writes_left: int | None = None
        self.latency = 0
        """Turns of the event loop that a round trip takes: who answers first is chance, which a test decides."""
        self.loses_replies = False
        """Every write is carried out and asked for once more, as on ZooKeeper when the connection breaks before the reply."""

    async def pipeline(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        outcomes: list[Result | StoreError] = []
        for _ in range(self.latency):
            await asyncio.sleep(0)
        for request in requests:
            is_write = not isinstance(request, Get | Exists | Children)
            if is_write and self.writes_left is not None:
                if self.writes_left == 0:
                    raise Crash("the process died here")
                self.writes_left -= 1
            (outcome,) = await super().pipeline([request])
            if is_write and self.loses_replies:
                (outcome,) = await super().pipeline([request])
            outcomes.append(outcome)
            if isinstance(request, Create | SetData | Delete | Multi) and not isinstance(outcome, StoreError):
                self.written.append(request.writes if isinstance(request, Multi) else (request,))
        return outcomes


class FixedRandom:
    """Random bytes that count up, random numbers that are always 0."""

    def __init__(self, seed: int = 0) -> None:
        self._numbers = count(seed + 1)

    def bytes(self, length: int) -> bytes:
        return next(self._numbers).to_bytes(length, "big")

    def below(self, _: int) -> int:
        return 0


class BrokerUnderTest:
    """One broker process: its session, its controller, its administration. Brokers of one ensemble find each other through `peers`."""

    def __init__(
        self,
        ensemble: MemoryEnsemble,
        broker_id: int = 0,
        *,
        peers: dict[int, RecordingBroker] | None = None,
        properties: dict[str, str] | None = None,
        seed: int = 0,
        rack: str | None = None,
    ) -> None:
        self.ensemble = ensemble
        self.broker_id = broker_id
        self.rack = rack
        self.peers = {} if peers is None else peers
        self.receiver = RecordingBroker()
        self.peers[broker_id] = self.receiver
        self.store = RecordingStore(ensemble)
        # Leaders go back on their own only where a test says so: that would come by the time of a busy machine.
        self.config = BrokerConfig({"auto.leader.rebalance.enable": "false"} | (properties or {}))
        self.metadata_waits = MetadataWaits()
        self.deletion_listeners: list[Callable[[], None]] = [self.metadata_waits.notify]
        random = FixedRandom(seed + 1000 * broker_id)
        self.random = random
        self.controller = Controller(
            self.store,
            broker_id,
            self.config,
            ensemble.clock,
            random.bytes,
            self._channel_to,
            "INTERNAL",
            self.registration,
            on_deletion_progress=self._on_deletion_progress,
        )
        self.topics = TopicAdmin(self.store, self.config, self.receiver.cluster, self.metadata_waits, random.bytes, random.below)
        self.growth = PartitionGrowth(self.store, self.receiver.cluster, self.metadata_waits, random.below, ["__consumer_offsets"])

    def registration(self) -> BrokerRegistration:
        endpoints = (
            Endpoint("INTERNAL", "PLAINTEXT", "127.0.0.1", 39392 + self.broker_id),
            Endpoint("EXTERNAL", "PLAINTEXT", "127.0.0.1", 39192 + self.broker_id),
        )
        return BrokerRegistration(endpoints, self.rack, self.ensemble.clock.now_ms())

    def _on_deletion_progress(self) -> None:
        for each in self.deletion_listeners:
            each()

    def _channel_to(self, broker: LiveBroker) -> InProcessChannel:
        own = broker.broker_id == self.broker_id
        return InProcessChannel(self.peers[broker.broker_id], self.metadata_waits.notify if own else lambda: None)

    async def start(self) -> None:
        await self.store.open_session()
        await prepare_store(self.store, self.random.bytes)
        await self.controller.startup()
        await self.controller.delivered()

    async def stop(self) -> None:
        await self.controller.shutdown()
        await self.store.close()

    async def settle(self) -> None:
        """Let watches, events and requests come to rest. At rest the loop has no callback left; asyncio has no public name for them."""
        callbacks = vars(asyncio.get_running_loop())["_ready"]
        for _ in range(20):
            await self.controller.delivered()
            await asyncio.sleep(0)
            if not callbacks:
                return


def new_ensemble() -> MemoryEnsemble:
    """An empty tree."""
    return MemoryEnsemble(ManualClock())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens on the event loop."""
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0)


P = TopicPartition("t", 0)
Scenario = Callable[["Cluster"], Awaitable[None]]


class Cluster:
    """Brokers by id; broker 0 starts first and is the controller."""

    def __init__(self, *, on_zookeeper: bool = False) -> None:
        """`on_zookeeper` says that the brokers are configured for ZooKeeper. The store is the same."""
        self.properties = {"zookeeper.connect": "127.0.0.1:2181"} if on_zookeeper else {}
        self.ensemble = new_ensemble()
        self.peers: dict[int, RecordingBroker] = {}
        self.brokers: dict[int, BrokerUnderTest] = {}

    async def start(self, broker_id: int, *, rack: str | None = None) -> BrokerUnderTest:
        seed = len(self.ensemble.dump())
        broker = BrokerUnderTest(self.ensemble, broker_id, peers=self.peers, properties=self.properties, seed=seed, rack=rack)
        self.brokers[broker_id] = broker
        await broker.start()
        await self.settle()
        return broker

    async def kill(self, broker_id: int) -> None:
        """Its session times out; nothing it still does can be seen by others."""
        broker = self.brokers.pop(broker_id)
        await broker.controller.shutdown()
        self.ensemble.expire(broker.store.session_id)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(3):
            for broker in self.brokers.values():
                await broker.settle()

    @property
    def controller(self) -> BrokerUnderTest:
        (active,) = [broker for broker in self.brokers.values() if broker.controller.is_active]
        return active

    def state(self, partition: TopicPartition = P) -> PartitionState:
        path = f"/brokers/topics/{partition.topic}/partitions/{partition.partition}/state"
        return decode_partition_state(path, self.ensemble.dump()[path].data)

    def assignment(self, partition: TopicPartition = P) -> ReplicaAssignment:
        path = topic_path(partition.topic)
        return decode_topic(path, self.ensemble.dump()[path].data).partitions[partition.partition]

    async def catch_up(self, *brokers: int, partition: TopicPartition = P) -> None:
        """The leader finds these followers in sync and proposes them for the ISR."""
        state = self.state(partition)
        leader = self.brokers[state.leader]
        epoch = leader.controller.broker_epoch
        partition_epoch = self.ensemble.dump()[partition_state_path(partition)].version
        isr = tuple(dict.fromkeys((*state.isr, *brokers)))
        result = await self.controller.controller.alter_isr(
            state.leader, epoch, {partition: IsrChange(state.leader_epoch, isr, partition_epoch)}
        )
        assert isinstance(result[partition], Leadership), result
        await self.settle()

    async def topic(self, *replicas: list[int], name: str = "t") -> None:
        result = await self.controller.topics.create_topics([NewTopic(name, assignments=dict(enumerate(replicas)))])
        assert isinstance(result[name], CreatedTopic)
        await self.settle()


def run(scenario: Scenario, brokers: int = 3, *, on_zookeeper: bool = False) -> None:
    async def play() -> None:
        cluster = Cluster(on_zookeeper=on_zookeeper)
        for broker_id in range(brokers):
            await cluster.start(broker_id)
        try:
            await scenario(cluster)
        finally:
            for broker in cluster.brokers.values():
                await broker.stop()

    asyncio.run(play())
