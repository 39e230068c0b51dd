"""Runs a follower in memory, with leaders for it: one that answers by a script, and a real one without sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.broker.network.request_channel import Pending
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.fetch_answer_reader import FetchAnswerReader
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.follower.fetch_session import FollowedPartition
from ottla.replication.follower.fetcher_pool import FetcherPool
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.peer import Peer, PeerUnavailable, Resolve
from ottla.replication.ports.throttle import ReplicationQuotas
from ottla.replication.remote.aux_state import AuxStates
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.directory_writes import OnWritten
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from tests.support.background import carry_out
from tests.support.batches import a_batch
from tests.support.handler_bench import HandlerBench
from tests.support.log_manager import Disks
from tests.support.pauses import at_once
from tests.support.replicas import TOPIC, TOPIC_ID, brokers, state

BROKER = 1
LEADER = 0
BROKER_EPOCH = 25
CHECKPOINT_SECONDS = 0.003
Answer = Message | Exception
Script = Callable[[ApiKey, int, Any], Answer]


class Asked:
    """A request that a peer was given: decoded from its bytes, for the fetcher uses its own again."""

    def __init__(self, api_key: ApiKey, version: int, request: Message) -> None:
        self.api_key = api_key
        self.version = version
        self.data = request.encode(version)
        self.request: Any = type(request).decode(self.data, version)[0]


def asked_at(request: Any, index: int = 0) -> Any:
    """The entry of a partition in a Fetch request; None when the request does not name it."""
    found = [each for topic in request.topics for each in topic.partitions if each.partition == index]
    return found[0] if found else None


class ScriptedPeer:
    """Answers what the script says next; a function in it is given the request. When nothing is left it answers when there is more."""

    def __init__(self, *script: Answer | Script) -> None:
        self.script: deque[Answer | Script] = deque(script)
        self.asked: list[Asked] = []
        self.closed = False
        self.client_id = ""
        self.resolve: Resolve = lambda: None

    async def request(self, api_key: ApiKey, version: int, request: Message, *, timeout_ms: int) -> Message:
        asked = Asked(api_key, version, request)
        self.asked.append(asked)
        await asyncio.sleep(0)
        await until(lambda: bool(self.script))
        answer = self.script.popleft()
        if callable(answer):
            answer = answer(api_key, version, asked.request)
        if isinstance(answer, Exception):
            raise answer
        return type(answer).decode(answer.encode(version), version)[0]

    async def fetch(self, version: int, request: FetchRequest, *, timeout_ms: int) -> FetchAnswerReader:
        return reader_of(await self.request(ApiKey.FETCH, version, request, timeout_ms=timeout_ms), version)

    async def close(self) -> None:
        self.closed = True

    @property
    def fetches(self) -> list[Any]:
        """The Fetch requests."""
        return [asked.request for asked in self.asked if asked.api_key == ApiKey.FETCH]


class Follower:
    """Broker 1, which follows. `peers`: what it is connected to, in the order of the connections."""

    def __init__(
        self,
        *peers: Peer,
        broker_id: int = BROKER,
        filesystem: FileSystem | None = None,
        topic_config: dict[str, str] | None = None,
        aux_states: AuxStates | None = None,
        **config: str | int,
    ) -> None:
        loop: Any = asyncio.get_running_loop()
        self.disks = Disks(filesystem)
        self.disks.clock = loop
        self.disks.topics[TOPIC] = topic_config or {}
        self.logs = self.disks.start(broker_id, **config)
        self.logs.context.submit = _in_a_thread
        self.logs.context.when_checkpointed = _checkpointed_soon
        self.config = self.disks.broker
        self.cluster = MetadataCache()
        self.manager = ReplicaManager(broker_id, self.logs, self.cluster, loop)
        self.broker_id = broker_id
        self.peers = deque(peers)
        self.connected: list[Peer] = []
        self.quotas = ReplicationQuotas(self.config, broker_id, loop)
        self.failed_dirs: list[str] = []
        self.pool = FetcherPool(
            self.config,
            broker_id,
            lambda: BROKER_EPOCH,
            self.connect,
            lambda broker_id: None,
            self._report_failure,
            self.quotas.follower,
            aux_states,
        )
        self.manager.followers = self.pool
        at_once(self.manager.on_update_metadata(UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=brokers(0, 1, 2))))

    def connect(self, resolve: Resolve, client_id: str, *, negotiate: bool = False) -> Peer:
        """See Connect."""
        peer = self.peers.popleft()
        if isinstance(peer, ScriptedPeer):
            peer.client_id = client_id
            peer.resolve = resolve
        self.connected.append(peer)
        return peer

    def _report_failure(self, failure: LogDirFailure) -> None:
        self.failed_dirs.append(failure.log_dir)
        self.logs.report_failure(failure)

    def say(self, *states: LeaderAndIsrPartitionState, topic: str = TOPIC, topic_id: bytes = TOPIC_ID) -> None:
        """LeaderAndIsr about partitions of a topic."""
        topic_state = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=list(states))
        at_once(self.manager.on_leader_and_isr(LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic_state])))

    def follow(self, *indexes: int, leader: int = LEADER, epoch: int = 1, topic: str = TOPIC, topic_id: bytes = TOPIC_ID) -> None:
        """Follow `leader` in `epoch` in these partitions, 0 unless given."""
        self.say(*(state(leader, epoch, index=index) for index in indexes or (0,)), topic=topic, topic_id=topic_id)

    def lead(self, index: int = 0, epoch: int = 0) -> None:
        """Lead a partition."""
        self.say(state(self.broker_id, epoch, index=index))

    def partition(self, index: int = 0) -> Partition:
        """A partition of the topic."""
        return self.manager.partitions[TOPIC][index]

    def log(self, index: int = 0) -> PartitionLog:
        """The log of a partition."""
        return self.partition(index).log

    def followed(self, index: int = 0, topic: str = TOPIC) -> FollowedPartition:
        """How the fetcher sees a partition that it fetches."""
        found = self.pool.followed(TopicPartition(topic, index))
        assert found is not None
        return found


class LeadingBroker:
    """Broker 0 with its real request handlers, whose purgatory lives in the loop's time."""

    def __init__(self, **topic_config: str) -> None:
        self.bench = HandlerBench(**topic_config)
        self.bench.replicas.logs.context.submit = _in_a_thread
        self.bench.replicas.logs.context.when_checkpointed = _checkpointed_soon
        loop = asyncio.get_running_loop()
        self.bench.services.data.fetch_purgatory = Purgatory("Fetch", TimingWheel(loop.time, loop.call_later))
        self.requests = 0

    def peer(self) -> DirectPeer:
        """A connection to it."""
        return DirectPeer(self)


class _Waiting:
    """The connection that a pending answer belongs to."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answer_ready(self) -> None:
        if not self.answered.done():
            self.answered.set_result(None)

    def hold_slot(self, pending: Pending) -> None:
        """See Waiter."""

    def begin_work(self) -> None:
        """See Waiter."""

    def end_work(self) -> None:
        """See Waiter."""

    def add_work(self, work_ns: int) -> None:
        """See Waiter."""


class DirectPeer:
    """Encodes, hands over, waits for the answer and decodes it: a connection without sockets."""

    def __init__(self, leader: LeadingBroker) -> None:
        self._leader = leader
        self.is_cut = False

    async def request(self, api_key: ApiKey, version: int, request: Message, *, timeout_ms: int) -> Message:
        if self.is_cut:
            raise PeerUnavailable("cut")
        self._leader.requests += 1
        asking = self._leader.bench.ask(request, api_key, version, "broker-1-fetcher-0")
        if asking.waits:
            waiting = _Waiting()
            asking.pending.connection = waiting  # type: ignore[assignment]  # all it needs of one
            try:
                await waiting.answered
            except asyncio.CancelledError:
                if asking.pending.on_closed is not None:
                    asking.pending.on_closed()
                raise
        await asyncio.sleep(0)
        if self.is_cut:
            raise PeerUnavailable("cut")
        response: Message = asking.response
        return response

    async def fetch(self, version: int, request: FetchRequest, *, timeout_ms: int) -> FetchAnswerReader:
        return reader_of(await self.request(ApiKey.FETCH, version, request, timeout_ms=timeout_ms), version)

    async def close(self) -> None:
        self.is_cut = True


def reader_of(response: Message, version: int) -> FetchAnswerReader:
    """A Fetch response as fetchers read it."""
    answer = FetchAnswerReader(memoryview(bytearray(response.encode(version))), 0, version)
    assert answer.verify(1_000_000)
    return answer


def batch(offset: int, count: int = 1, epoch: int = 1, **more: Any) -> bytearray:
    """A batch as a leader has it in its log."""
    return a_batch(count, base_offset=offset, leader_epoch=epoch, **more)


def answer(*partitions: PartitionData, session_id: int = 7, topic_id: bytes = TOPIC_ID, error_code: int = 0) -> FetchResponse:
    """A Fetch response about partitions of the topic."""
    topics = [FetchableTopicResponse(topic_id=topic_id, partitions=list(partitions))] if partitions else []
    return FetchResponse(error_code=error_code, session_id=session_id, responses=topics)


def answer_by_name(*partitions: PartitionData, session_id: int = 7) -> FetchResponse:
    """The same for versions that name topics."""
    topics = [FetchableTopicResponse(topic=TOPIC, topic_id=ZERO_UUID, partitions=list(partitions))] if partitions else []
    return FetchResponse(session_id=session_id, responses=topics)


def data(index: int = 0, found: bytes = b"", high_watermark: int = 0, log_start_offset: int = 0, **more: Any) -> PartitionData:
    """One partition of a Fetch response."""
    return PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start_offset,
        aborted_transactions=None,
        records=found,
        **more,
    )


def failed(code: int, index: int = 0) -> PartitionData:
    """One partition that could not be read."""
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, log_start_offset=-1, records=b"")


def _in_a_thread(name: str, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
    """As if one took two milliseconds."""
    asyncio.get_running_loop().call_later(0.002, carry_out, work, then)


def _checkpointed_soon(log_dir: str, then: OnWritten) -> None:
    """As if the checkpoints took some milliseconds."""
    asyncio.get_running_loop().call_later(CHECKPOINT_SECONDS, then, None)


async def until(condition: Callable[[], bool]) -> None:
    """Lets others run until it is so; the scenario's time limit is the deadline."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.001)


class Replica(LeadingBroker):
    """One of two replicas, either of which may lead. In its own eyes it is broker 0 and the other one broker 1."""

    def __init__(self, **topic_config: str) -> None:
        super().__init__(**topic_config)
        self.bench.know(p0=0)
        self.other: Replica | None = None
        loop: Any = asyncio.get_running_loop()
        config = self.bench.replicas.disks.broker
        self.manager = self.bench.replicas.manager
        self.quotas = ReplicationQuotas(config, 1, loop)
        self.pool = FetcherPool(
            config,
            1,
            lambda: BROKER_EPOCH,
            self._connect,
            lambda broker_id: None,
            self.bench.replicas.logs.report_failure,
            self.quotas.follower,
        )
        self.manager.followers = self.pool
        self.peers: list[DirectPeer] = []

    def _connect(self, resolve: Resolve, client_id: str, *, negotiate: bool = False) -> Peer:
        assert self.other is not None
        self.peers.append(self.other.peer())
        return self.peers[-1]

    def lead(self, epoch: int) -> None:
        """From now on."""
        self.bench.replicas.say(state(0, epoch, isr=(0, 1), replicas=(0, 1)))

    def follow(self, epoch: int) -> None:
        """The other one leads."""
        self.bench.replicas.say(state(1, epoch, isr=(0, 1), replicas=(0, 1)))

    @property
    def log(self) -> PartitionLog:
        """Its log."""
        return self.bench.replicas.partition.log
