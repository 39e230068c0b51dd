"""Wires a broker into its cluster: connections to other brokers, and the components that use them.

`ottla.broker.server` makes one per broker before its services, which use the components, and closes it after the listeners. A broker that
is alone (with neither ZooKeeper nor a shared metadata file) has one as well, but never connects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.broker.cluster.auto_topics import AutoTopics
from ottla.broker.cluster.broker_channels import BrokerChannels, control_versions
from ottla.broker.cluster.broker_requests import BrokerRequests
from ottla.broker.cluster.control_requests import ControlRequests
from ottla.broker.cluster.controller_channel import ControllerChannel, address_in
from ottla.broker.cluster.itself import Itself
from ottla.broker.cluster.missed_deletions import MissedDeletions
from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.broker.cluster.stray_replicas import StrayReplicas
from ottla.broker.loop.background import LoopBackground
from ottla.broker.remote.metadata.assembly import topic_metadata
from ottla.broker.remote.metadata.peers import MetadataPeers
from ottla.broker.remote.metadata.snapshot_files import SnapshotFiles
from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
from ottla.broker.request.first_metadata import FirstMetadata
from ottla.broker.request.services import Services
from ottla.config.broker import BrokerConfig
from ottla.config.keys.general import CONTROLLED_SHUTDOWN_ENABLE
from ottla.config.keys.network import REQUEST_TIMEOUT_MS, SOCKET_REQUEST_MAX_BYTES
from ottla.config.keys.own import OTTLA_METADATA_FILE
from ottla.config.keys.replication import (
    CONTROLLER_SOCKET_TIMEOUT_MS,
    INTER_BROKER_PROTOCOL_VERSION,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_LAG_TIME_MAX_MS,
)
from ottla.config.keys.zookeeper import ZOOKEEPER_SESSION_TIMEOUT_MS
from ottla.config.remote_metadata import metadata_settings
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.admin.topic_admin import TopicAdmin
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.changes import ProducerIdBlock
from ottla.controller.znodes.topic_ids import uses_topic_ids
from ottla.coordination.internal_topics import SHARE_STATE_TOPIC
from ottla.coordination.shares.positions import Positions
from ottla.coordination.shares.state.coordinator import ShareCoordinator
from ottla.coordination.shares.state_access import StateAccess
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.coordination.transactions.markers import WRITE_MARKERS_VERSION, WriteMarkers
from ottla.coordination.transactions.verification import VERIFICATION_VERSION, TransactionVerifier
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.client_security import ClientSecurity
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.protocol.schema.message import Message
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.peer import Connect, PeerAddress, PeerUnavailable
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.clock import Clock, elapsed_ms
from ottla.storage.errors import LogDirFailure

if TYPE_CHECKING:
    from ottla.replication.control.alter_partition import AlterPartition
    from ottla.replication.follower.fetcher_pool import FetcherPool
    from ottla.replication.ports.throttle import ReplicationQuota
    from ottla.replication.remote.aux_state import AuxStates

logger = logging.getLogger(__name__)

Connector: TypeAlias = Callable[[int, ClientSecurity], Connect]
"""Makes a function that connects to other brokers, for responses of at most the given number of bytes."""
SecurityAt: TypeAlias = Callable[[str], ClientSecurity]

ISOLATION_PERIOD_MS = 500
DELIVERY_SECONDS = 1.0
"""Time for a stopping controller to deliver its last decisions to the brokers, seconds."""


def is_alone(config: BrokerConfig) -> bool:
    """Whether no other broker can ever be in this broker's cluster."""
    return config.standalone and config[OTTLA_METADATA_FILE] is None


def _connect_at(connector: Connector, max_response_bytes: int, security_at: SecurityAt, listener: str) -> Connect:
    """Connects to a listener of other brokers, with the credentials that this broker has for it."""
    return connector(max_response_bytes, security_at(listener))


class FollowerParts(NamedTuple):
    """Connects the replica manager to other brokers."""

    isr_proposals: AlterPartition
    leader_quota: ReplicationQuota
    fetcher_pool: FetcherPool


class ClusterWiring:
    """See the module."""

    def __init__(
        self, config: BrokerConfig, itself: Itself, metadata: MetadataCache, clock: Clock, connector: Connector, security_at: SecurityAt
    ) -> None:
        """`security_at` returns the security of connections to a listener of other brokers."""
        self._config = config
        self._itself = itself
        self._metadata = metadata
        self._clock = clock
        listeners = config.listeners
        self._listener = listeners.inter_broker_listener_name
        self._control_plane = listeners.control_plane_listener_name or self._listener
        """The listener for requests from and to the controller."""
        # A response may exceed its limit by one batch, which arrived in a request.
        max_response_bytes = config[REPLICA_FETCH_RESPONSE_MAX_BYTES] + config[SOCKET_REQUEST_MAX_BYTES]
        self._connect_at = partial(_connect_at, connector, max_response_bytes, security_at)
        self.connect = self._connect_control = self._connect_at(self._listener)
        if self._control_plane != self._listener:
            self._connect_control = self._connect_at(self._control_plane)
        self._held = AsyncExitStack()
        """The components, with their closing functions."""
        self._to_controller = self._controller_channel()

    def follower_parts(self, report_failure: Callable[[LogDirFailure], None], aux_states: AuxStates | None) -> FollowerParts | None:
        """Makes the connections of replicas here to other brokers; None where there can be no other broker. For the parameters see
        `FetcherPool`."""
        config, broker_id, broker_epoch = self._config, self._itself.broker_id, self._itself.broker_epoch
        if is_alone(config):
            return None
        from ottla.replication.control.alter_partition import AlterPartition
        from ottla.replication.follower.fetcher_pool import FetcherPool
        from ottla.replication.ports.throttle import ReplicationQuotas

        channel = self._controller_channel()

        async def ask(api_key: ApiKey, version: int, message: Message) -> Message:
            return await channel.request(api_key, version, message, config[REQUEST_TIMEOUT_MS])

        alter_partition = AlterPartition(broker_id, broker_epoch, ask, uses_topic_ids=uses_topic_ids(config))
        self._held.push_async_callback(alter_partition.close)
        quotas = ReplicationQuotas(config, broker_id, self._clock)
        pool = FetcherPool(config, broker_id, broker_epoch, self.connect, self._address_of, report_failure, quotas.follower, aux_states)
        self._held.push_async_callback(pool.close)
        return FollowerParts(alter_partition, quotas.leader, pool)

    def controller_listeners(
        self,
        store: MetadataStore,
        waits: MetadataWaits,
        first_metadata: FirstMetadata,
        replicas: ReplicaManager,
        background: LoopBackground,
    ) -> list[Callable[[], None]]:
        """Returns the listeners for another controller, and for the requests of a controller to another incarnation of this broker."""
        missed_deletions = MissedDeletions(store, waits, first_metadata, replicas)
        self._held.push_async_callback(missed_deletions.close)
        if is_alone(self._config):
            return [missed_deletions.on_other_controller]
        strays = StrayReplicas(store, replicas, background)
        self._held.push_async_callback(strays.close)
        return [missed_deletions.on_other_controller, strays.on_other_controller]

    def channels(self, control_requests: ControlRequests) -> BrokerChannels:
        """The controller's channels to brokers. `control_requests` are those of this broker."""
        config = self._config
        return BrokerChannels(
            self._itself.broker_id,
            self._itself.broker_epoch,
            control_requests,
            self._connect_control,
            self._control_plane,
            control_versions(config[INTER_BROKER_PROTOCOL_VERSION]),
            config[CONTROLLER_SOCKET_TIMEOUT_MS],
        )

    def begin(self, services: Services, background: LoopBackground, send_clients_away: Callable[[], None]) -> None:
        """Begin to shrink ISRs, and to look for an isolation from the cluster, before the controller first sends requests.
        `send_clients_away` closes all connections."""
        config, manager = self._config, services.data.replica_manager
        if is_alone(config):
            return
        from ottla.replication.leader.isolation import Isolation

        period_ms = config[REPLICA_LAG_TIME_MAX_MS] // 2

        def shrink_isrs() -> None:
            manager.maybe_shrink_isrs(elapsed_ms(self._clock))

        background.schedule("isr-expiration", period_ms, period_ms, shrink_isrs)
        timeout_ms = config[ZOOKEEPER_SESSION_TIMEOUT_MS]
        isolation = Isolation(manager, lambda: services.administration.store.is_connected, timeout_ms, self._clock, send_clients_away)
        background.schedule("isolation", ISOLATION_PERIOD_MS, ISOLATION_PERIOD_MS, isolation.look)

    def write_markers(self) -> WriteMarkers:
        """How the coordinator of transactions has markers written by the leaders of partitions."""
        brokers = self._broker_requests(f"broker-{self._itself.broker_id}-txn-marker-sender")

        async def write(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
            response = await brokers.ask(broker_id, ApiKey.WRITE_TXN_MARKERS, WRITE_MARKERS_VERSION, request)
            assert isinstance(response, WriteTxnMarkersResponse)
            return response

        return write

    def transaction_verifier(self, here: TransactionCoordinator) -> TransactionVerifier:
        """Asks the coordinators of transactions, of which this broker has `here`, about what producers write here
        (`transactions.verification`)."""
        broker_id = self._itself.broker_id
        brokers = self._broker_requests(f"AddPartitionsManager-client-{broker_id}")

        async def ask(broker_id: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
            response = await brokers.ask(broker_id, ApiKey.ADD_PARTITIONS_TO_TXN, VERIFICATION_VERSION, request)
            assert isinstance(response, AddPartitionsToTxnResponse)
            return response

        verifier = TransactionVerifier(self._metadata, here.partition_for, ask, self._clock.monotonic, (broker_id, here))
        self._held.push_async_callback(verifier.close)
        return verifier

    def share_state(self, timing_wheel: TimingWheel, here: ShareCoordinator, auto_topics: AutoTopics) -> StateAccess:
        """Asks the coordinators of share partitions, of which this broker has `here`, about their state (`shares.state_access`)."""
        broker_id = self._itself.broker_id
        brokers = self._broker_requests(f"Persister-{broker_id}")
        access = StateAccess(here, broker_id, self._metadata, timing_wheel, brokers.ask, lambda: auto_topics.create([SHARE_STATE_TOPIC]))
        self._held.push_async_callback(access.close)
        return access

    def share_positions(self, access: StateAccess) -> Positions:
        """Finds where share groups are in partitions."""
        return Positions(access, self._broker_requests(f"ShareLag-{self._itself.broker_id}").ask, self._metadata)

    def remote_metadata(
        self,
        snapshots_of: Callable[[int], SnapshotFiles],
        topic_admin: TopicAdmin,
        producer_ids: ProducerIds,
        while_loading: Callable[[], AbstractContextManager[None]],
    ) -> TopicMetadata:
        """Reads and writes the metadata of remote segments. `snapshots_of` is called with the number of partitions. Raises
        ConfigError."""
        settings = metadata_settings(self._config)
        connect = self.connect if settings.listener_name == self._listener else self._connect_at(settings.listener_name)
        peers = MetadataPeers(connect, self._metadata, settings.listener_name, self._itself.broker_id)
        snapshots = snapshots_of(settings.partitions)
        return topic_metadata(settings, self._metadata, peers, self._clock, snapshots, topic_admin, producer_ids, while_loading)

    def _broker_requests(self, client_id: str) -> BrokerRequests:
        """Requests to any broker, over connections of their own."""
        itself, timeout_ms = self._itself, self._config[REQUEST_TIMEOUT_MS]
        brokers = BrokerRequests(itself.broker_id, client_id, timeout_ms, self.connect, self._address_of, itself.ask)
        self._held.push_async_callback(brokers.close)
        return brokers

    def _controller_channel(self) -> ControllerChannel:
        """A channel to the active controller, whichever broker that is."""
        itself = self._itself
        channel = ControllerChannel(
            self._metadata, self._connect_control, self._control_plane, str(itself.broker_id), itself.is_controller, itself.ask
        )
        self._held.push_async_callback(channel.close)
        return channel

    def _address_of(self, broker_id: int) -> PeerAddress | None:
        return address_in(self._metadata, broker_id, self._listener)

    async def producer_id_block(self) -> ProducerIdBlock:
        """The next block of producer ids, from the controller. Raises PeerUnavailable."""
        broker_id = self._itself.broker_id
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=self._itself.broker_epoch())
        timeout_ms = self._config[REQUEST_TIMEOUT_MS]
        response = await self._to_controller.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, request, timeout_ms)
        assert isinstance(response, AllocateProducerIdsResponse)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            is_denied = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            advice = "; give the principal of this broker ClusterAction on the cluster, or name it in super.users" if is_denied else ""
            raise PeerUnavailable(f"the controller refused with {code.name}{advice}")
        first = response.producer_id_start
        return ProducerIdBlock(broker_id, first, first + response.producer_id_len - 1)

    async def hand_over(self, services: Services) -> None:
        """Move leaderships to other brokers before the broker stops, while it still serves
        (`controlled.shutdown.enable`)."""
        itself, controller = self._itself, services.cluster.controller
        if self._config[CONTROLLED_SHUTDOWN_ENABLE] and len(self._metadata.brokers) > 1:
            from ottla.broker.cluster.controlled_shutdown import ControlledShutdown, Leaving

            services.data.replica_manager.followers = Leaving(services.data.replica_manager.followers)
            shutdown = ControlledShutdown(
                self._config,
                self._metadata,
                services.data.replica_manager,
                self.connect,
                itself.is_controller,
                itself.ask,
                lambda: services.administration.store.is_connected,
            )
            await shutdown.run(itself.broker_id, controller.broker_epoch)
        if controller.is_active:
            try:
                async with asyncio.timeout(DELIVERY_SECONDS):
                    await controller.delivered()
            except TimeoutError:
                logger.warning("not every broker received the controller's last decisions; the next controller sends them")

    async def close(self) -> None:
        """Close the started components and the connections."""
        await self._held.aclose()
