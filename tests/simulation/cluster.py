"""Whole brokers in one process, on a virtual clock: all of `ottla.broker.server` is the real thing but sockets, threads, disks and
ZooKeeper.

`SimulatedCluster` starts, kills, pauses, isolates and stops them. What is random comes from one seed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, cast
from unittest.mock import patch

from ottla.broker.environment import Environment
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.socket_server import SocketServer
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.store.tree import ROOT
from ottla.controller.znodes.layout import FEATURE, FeatureNode, encode_feature
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.client_security import ClientSecurity
from ottla.protocol.features import GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.peer import Connect, Peer, PeerAddress, Resolve
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager import log_closing, log_loading
from ottla.storage.remote.ports import RemoteLogMetadata, RemoteStore
from tests.simulation.elections import WatchedEnsemble
from tests.simulation.loop import STEP_NS, Life, NoThreads, SimulatedLoop
from tests.simulation.network import CLIENT, SimulatedNetwork, SimulatedPeer, SimulatedServer
from tests.simulation.remote import RemoteObjects, SimulatedRemoteStore
from tests.simulation.store import ENSEMBLE, SessionKeeper, SimulatedStore
from tests.support.filesystems import MemoryFileSystem

PORT = 9092
EPOCH_MS = 1_700_000_000_000
SESSION_TIMEOUT_S = 0.6
SWEEP_S = 0.05
STOP_S = 10.0
"""How long a broker may take to stop."""
TORN = 0.2
"""How likely a kill finds a log being written."""
MOST_CALLBACKS = 100
"""Callbacks of an exit stack that a dead coroutine may be in, each of which waits once."""

CONFIG = {
    "log.dirs": "/data",
    "zookeeper.connect": "simulated:2181",
    "zookeeper.session.timeout.ms": "600",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "log.cleaner.enable": "false",
    "log.segment.bytes": "20000",
    "log.index.size.max.bytes": "4096",
    "leader.imbalance.check.interval.seconds": "3",
    "controller.socket.timeout.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}


class SimulatedClock:
    """Virtual time; the wall clock of each node goes wrong by `skew_ms`."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        """See Clock."""
        return EPOCH_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic(self) -> float:
        """See Clock."""
        return self._loop.time()


class SimulatedEnvironment(Environment):
    """What one life of one node touches."""

    is_process = False
    has_store_process = False

    def __init__(self, cluster: SimulatedCluster, node: Node, life: Life) -> None:
        self.clock = node.clock
        self.clock_ns = count(0, STEP_NS).__next__
        self.random = cast("Any", Random(cluster.random.getrandbits(64)))
        self.random_bytes = self.random.randbytes
        self.file_system = cast("Any", node.disk)
        self._cluster = cluster
        self._host = node.host
        self._life = life

    def workers(self, config: BrokerConfig) -> Executor:
        """See Environment."""
        return NoThreads()

    async def check_addresses(self, config: BrokerConfig) -> None:
        """Do nothing: each simulated host has its addresses for itself."""

    def socket_server(self, limits: NetworkLimits) -> SocketServer:
        """See Environment."""
        return cast("SocketServer", SimulatedServer(self._cluster.network, self._host, self._life, limits))

    def connect(self, max_response_bytes: int, security: ClientSecurity) -> Connect:
        """See Environment."""

        def connect(resolve: Resolve, client_id: str, *, negotiate: bool = False) -> Peer:
            return SimulatedPeer(self._cluster.network, self._host, resolve, client_id, self._cluster.newest_version if negotiate else None)

        return connect

    async def is_listening(self, host: str, port: int) -> bool:
        """See Environment."""
        server = self._cluster.network.listening.get((host, port))
        return server is not None and server.is_reachable

    def remote_store(self, store: RemoteStore) -> RemoteStore:
        """See Environment."""
        return SimulatedRemoteStore(self._cluster.objects, self._host, self._life, self.file_system)

    def metadata_store(self, open_store: Callable[[], MetadataStore]) -> MetadataStore:
        """See Environment."""
        return SimulatedStore(self._cluster.keeper, self._host, self._life)


class Node:
    """A machine: its disk and clock stay when its broker dies."""

    def __init__(self, cluster: SimulatedCluster, broker_id: int) -> None:
        self.broker_id = broker_id
        self.host = f"node-{broker_id}"
        self.disk = MemoryFileSystem()
        self.clock = SimulatedClock(cluster.loop)
        self.life: Life | None = None
        self.broker: Broker | None = None
        self.starting: asyncio.Task[list[str]] | None = None

    @property
    def is_up(self) -> bool:
        """Whether a broker runs, or hangs, there."""
        return self.life is not None and not self.life.is_dead


class SimulatedCluster:
    """See the module."""

    def __init__(
        self, seed: int, brokers: int = 3, config: dict[str, str] | None = None, transaction_version: int = 0, share_version: int = 0
    ) -> None:
        """The versions are the finalized levels of the features; consumer groups of the new protocol are there always."""
        self.random = Random(seed)
        self.loop = SimulatedLoop(Random(self.random.getrandbits(64)))
        self.network = SimulatedNetwork(self.loop, Random(self.random.getrandbits(64)))
        self.clock = SimulatedClock(self.loop)
        self.ensemble = WatchedEnsemble(self.clock)
        self.keeper = SessionKeeper(self.ensemble, self.network, SESSION_TIMEOUT_S)
        self.transaction_version = transaction_version
        levels = {GROUP_VERSION: 1, TRANSACTION_VERSION: transaction_version, SHARE_VERSION: share_version}
        finalized = FeatureNode({name: level for name, level in levels.items() if level})
        self.ensemble.put(FEATURE, ROOT._replace(data=encode_feature(finalized), cversion=0))
        self._config = {**CONFIG, **(config or {})}
        self.nodes = {broker_id: Node(self, broker_id) for broker_id in range(brokers)}
        self.objects = RemoteObjects(self.network, Random(seed))
        self.objects.metadata_of = self._metadata_of
        self.objects.log_of = self._log_of

    def newest_version(self, host: str, key: ApiKey) -> int:
        """The newest version of an API that the broker of a host lists."""
        node = next(node for node in self.nodes.values() if node.host == host)
        services = getattr(node.broker, "services", None)
        return (versions_in_3_9(key) if services is None else services.listed.versions[key]).last

    @property
    def hosts(self) -> list[str]:
        """Everybody on the network."""
        return [*(node.host for node in self.nodes.values()), ENSEMBLE, CLIENT]

    def run(self, work: Any, virtual_seconds: float = 3600.0) -> Any:
        """Run a coroutine to its end."""

        async def bounded() -> Any:
            sweeping = self.loop.call_later(0, self._sweep)
            try:
                async with asyncio.timeout(virtual_seconds):
                    return await work
            finally:
                sweeping.cancel()

        asyncio.set_event_loop(self.loop)
        with (
            patch.object(log_loading, "ThreadPoolExecutor", NoThreads),
            patch.object(log_closing, "ThreadPoolExecutor", NoThreads),
        ):
            try:
                return self.loop.run_until_complete(bounded())
            finally:
                asyncio.set_event_loop(None)

    def _sweep(self) -> None:
        self.keeper.sweep()
        self.loop.call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        """Kill everything, and forget it without a word."""
        for node in self.nodes.values():
            self.kill(node.broker_id)
        before = sys.unraisablehook
        sys.unraisablehook = lambda _: None  # what dies in the middle of something cannot tidy up
        try:
            for task in self.loop.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # dead nodes leave their tasks behind
                _close(cast("Coroutine[Any, Any, Any]", task.get_coro()))
            self.loop.tasks.clear()
            for node in self.nodes.values():
                node.starting = None
            gc.collect()
        finally:
            sys.unraisablehook = before
            self.loop.close()

    # What happens to nodes

    def start(self, broker_id: int) -> asyncio.Task[list[str]]:
        """Start a broker that is down; the task ends when it listens."""
        node = self.nodes[broker_id]
        assert not node.is_up
        life = node.life = Life(self.loop, broker_id)
        node.disk.release_locks()
        listeners = f"PLAINTEXT://{node.host}:{PORT}"
        config = BrokerConfig({**self._config, "broker.id": str(broker_id), "listeners": listeners})
        broker = node.broker = Broker(config, SimulatedEnvironment(self, node, life))
        node.starting = self.loop.create_task(broker.start(), context=life.context.copy())
        return node.starting

    def kill(self, broker_id: int, torn: Random | None = None) -> None:
        """SIGKILL: the page cache stays. With `torn` it strikes in the middle of writes to some logs, whose first bytes stay, too."""
        node = self.nodes[broker_id]
        if torn is not None and node.broker is not None:
            tear_writes(node.broker, node.disk, torn)
        if node.life is not None:
            node.life.die()
        for server in list(self.network.listening.values()):
            if server.life is node.life:
                server.die()
        node.broker = None

    def pause(self, broker_id: int) -> None:
        """SIGSTOP."""
        life = self.nodes[broker_id].life
        if life is not None:
            life.pause()

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        life = self.nodes[broker_id].life
        if life is not None and life.is_paused:
            life.resume()

    async def stop(self, broker_id: int) -> None:
        """SIGTERM; killed if it does not end soon."""
        node = self.nodes[broker_id]
        broker, life = node.broker, node.life
        if broker is None or life is None or node.starting is None or not node.starting.done():
            self.kill(broker_id)
            return
        stopping = self.loop.create_task(broker.stop(), context=life.context.copy())
        await asyncio.wait([stopping], timeout=STOP_S)
        if node.life is life:
            self.kill(broker_id)

    def expire_session(self, broker_id: int) -> None:
        """The ensemble ends the broker's session."""
        store = self.keeper.store_of(self.nodes[broker_id].host)
        if store is not None:
            self.keeper.expire(store)

    # What can be seen of them

    def brokers(self) -> Iterator[Broker]:
        """Those that have come up."""
        for node in self.nodes.values():
            starting = node.starting
            if node.is_up and node.broker is not None and starting is not None and starting.done() and starting.exception() is None:
                yield node.broker

    def replicas(self, topic: str, partition: int) -> dict[int, Partition]:
        """The partition on every broker that is up and hosts it."""
        found = {}
        for broker in self.brokers():
            replica = broker.services.data.replica_manager.partition(topic, partition)
            if replica is not None:
                found[broker.services.broker_id] = replica
        return found

    def _metadata_of(self, broker_id: int) -> RemoteLogMetadata | None:
        broker = self.nodes[broker_id].broker
        remote = None if broker is None else broker.services.remote
        return None if remote is None else remote.metadata

    def _log_of(self, broker_id: int, partition: TopicPartition) -> PartitionLog | None:
        broker = self.nodes[broker_id].broker
        replica = None if broker is None else broker.services.data.replica_manager.partition(*partition)
        return None if replica is None else replica.log

    def client(self, broker_id: int) -> Peer:
        """A connection of the outside world to a broker."""
        address = PeerAddress(self.nodes[broker_id].host, PORT)
        return SimulatedPeer(self.network, CLIENT, lambda: address, "client")


def tear_writes(broker: Broker, disk: MemoryFileSystem, random: Random) -> None:
    """Leave the beginning of one more batch behind the end of some logs, as a write does that did not come to its end."""
    for log in broker.log_manager.current_logs() if hasattr(broker, "log_manager") else ():
        if log.truncations.current is None and not log.is_closed and random.random() < TORN:
            tear_write(log, disk, random)


def tear_write(log: PartitionLog, disk: MemoryFileSystem, random: Random) -> None:
    """Leave the beginning of one more batch behind the end of a log."""
    batch = build_batch([Record(log.log_end_offset, EPOCH_MS, None, b"torn")], partition_leader_epoch=log.latest_epoch or 0)
    segment = log.segments.active
    disk.open(segment.path).pwrite(batch[: random.randrange(len(batch))], segment.size)


def silence() -> None:
    """The log of a thousand failovers is of no use."""
    logging.getLogger("ottla").setLevel(logging.CRITICAL)


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    """End a coroutine for good. An exit stack goes on with its next callback each time, and what waits again is not closed."""
    for _ in range(MOST_CALLBACKS):
        with suppress(RuntimeError):
            coroutine.close()
            return
