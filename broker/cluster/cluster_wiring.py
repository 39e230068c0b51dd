"""Wires a broker into its cluster: connections to other brokers, and the components that use them.

`ottla.broker.server` makes one per broker before it registers, and closes it after the listeners. A broker that is alone
(with neither ZooKeeper nor a shared metadata file) has one as well, but never connects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from functools import partial
from typing import TypeAlias

from ottla.broker.cluster.broker_channels import BrokerChannels, control_versions
from ottla.broker.cluster.broker_requests import BrokerRequests
from ottla.broker.cluster.control_requests import ControlRequests
from ottla.broker.cluster.controller_channel import ControllerChannel, address_in, asking_here
from ottla.broker.cluster.missed_deletions import MissedDeletions
from ottla.broker.cluster.stray_replicas import StrayReplicas
from ottla.broker.loop.background import LoopBackground
from ottla.broker.remote.metadata.assembly import topic_metadata
from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
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
from ottla.controller.state.channels import BrokerChannel
from ottla.controller.state.context import LiveBroker
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
from ottla.replication.ports.peer import Connect, PeerAddress, PeerUnavailable
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.clock import elapsed_ms
from ottla.storage.disk.filesystem import FileSystem

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


class ClusterWiring:
    """See the module. `services` get their group `cluster` afterwards, whose parts use this."""

    def __init__(self, services: Services, control_requests: ControlRequests, connector: Connector, security_at: SecurityAt) -> None:
        """`control_requests` are those of this broker. `security_at` returns the security of connections to a listener of other brokers."""
        config = services.config
        self._services = services
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
        self._channels = BrokerChannels(
            services.broker_id,
            lambda: services.cluster.controller.broker_epoch,
            control_requests,
            self._connect_control,
            self._control_plane,
            control_versions(config[INTER_BROKER_PROTOCOL_VERSION]),
            config[CONTROLLER_SOCKET_TIMEOUT_MS],
        )
        self._ask_here = asking_here(services, self._listener)
        self._to_controller = self._controller_channel()
        self._held = AsyncExitStack()
        """The components that were started, with their closing functions."""
        self._held.push_async_callback(self._to_controller.close)
        self._missed_deletions = MissedDeletions(services)
        control_requests.on_other_controller = self._missed_deletions.on_other_controller
        self._held.push_async_callback(self._missed_deletions.close)

    def begin(self, background: LoopBackground, send_clients_away: Callable[[], None]) -> None:
        """Start what replicas here need of other brokers, before the controller first sends requests.
        `send_clients_away` closes all connections."""
        services = self._services
        config = services.config
        if is_alone(config):
            return
        from ottla.replication.control.alter_partition import AlterPartition
        from ottla.replication.follower.fetcher_pool import FetcherPool
        from ottla.replication.leader.isolation import Isolation
        from ottla.replication.ports.throttle import ReplicationQuotas

        strays = StrayReplicas(services, background)
        self._held.push_async_callback(strays.close)

        def on_other_controller() -> None:
            self._missed_deletions.on_other_controller()
            strays.on_other_controller()

        services.cluster.control_requests.on_other_controller = on_other_controller
        channel = self._controller_channel()
        self._held.push_async_callback(channel.close)

        async def ask(api_key: ApiKey, version: int, message: Message) -> Message:
            return await channel.request(api_key, version, message, config[REQUEST_TIMEOUT_MS])

        alter_partition = AlterPartition(
            services.broker_id,
            lambda: services.cluster.broker_epoch,
            ask,
            uses_topic_ids=uses_topic_ids(config),
        )
        self._held.push_async_callback(alter_partition.close)
        manager = services.data.replica_manager
        manager.isr_proposals = alter_partition
        quotas = ReplicationQuotas(config, services.broker_id, services.clock)
        manager.leader_quota = quotas.leader
        manager.followers = services.cluster.fetcher_pool = pool = FetcherPool(
            config,
            services.broker_id,
            lambda: services.cluster.broker_epoch,
            self.connect,
            self._address_of,
            manager.on_log_dir_failure,
            quotas.follower,
        )
        self._held.push_async_callback(pool.close)
        period_ms = config[REPLICA_LAG_TIME_MAX_MS] // 2

        def shrink_isrs() -> None:
            manager.maybe_shrink_isrs(elapsed_ms(services.clock))

        background.schedule("isr-expiration", period_ms, period_ms, shrink_isrs)
        timeout_ms = config[ZOOKEEPER_SESSION_TIMEOUT_MS]
        isolation = Isolation(manager, lambda: services.administration.store.is_connected, timeout_ms, services.clock, send_clients_away)
        background.schedule("isolation", ISOLATION_PERIOD_MS, ISOLATION_PERIOD_MS, isolation.look)

    def channel_to(self, broker: LiveBroker) -> BrokerChannel:
        """The controller's channel to a broker (`ottla.controller.state.channels.ChannelFactory`)."""
        return self._channels(broker)

    def write_markers(self) -> WriteMarkers:
        """How the coordinator of transactions has markers written by the leaders of partitions."""
        brokers = self._broker_requests(f"broker-{self._services.broker_id}-txn-marker-sender")

        async def write(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
            response = await brokers.ask(broker_id, ApiKey.WRITE_TXN_MARKERS, WRITE_MARKERS_VERSION, request)
            assert isinstance(response, WriteTxnMarkersResponse)
            return response

        return write

    def transaction_verifier(self, here: TransactionCoordinator) -> TransactionVerifier:
        """Asks the coordinators of transactions, of which this broker has `here`, about what producers write here
        (`transactions.verification`)."""
        services = self._services
        brokers = self._broker_requests(f"AddPartitionsManager-client-{services.broker_id}")

        async def ask(broker_id: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
            response = await brokers.ask(broker_id, ApiKey.ADD_PARTITIONS_TO_TXN, VERIFICATION_VERSION, request)
            assert isinstance(response, AddPartitionsToTxnResponse)
            return response

        verifier = TransactionVerifier(services.metadata, here.partition_for, ask, services.clock.monotonic, (services.broker_id, here))
        self._held.push_async_callback(verifier.close)
        return verifier

    def share_state(self, timing_wheel: TimingWheel, here: ShareCoordinator) -> StateAccess:
        """Asks the coordinators of share partitions, of which this broker has `here`, about their state (`shares.state_access`)."""
        services = self._services
        brokers = self._broker_requests(f"Persister-{services.broker_id}")
        access = StateAccess(
            here,
            services.broker_id,
            services.metadata,
            timing_wheel,
            brokers.ask,
            lambda: services.administration.auto_topics.create([SHARE_STATE_TOPIC]),
        )
        self._held.push_async_callback(access.close)
        return access

    def share_positions(self, access: StateAccess) -> Positions:
        """Finds where share groups are in partitions."""
        services = self._services
        return Positions(access, self._broker_requests(f"ShareLag-{services.broker_id}").ask, services.metadata)

    def remote_metadata(self, filesystem: FileSystem, while_loading: Callable[[], AbstractContextManager[None]]) -> TopicMetadata:
        """Reads and writes the metadata of remote segments. Raises ConfigError."""
        services = self._services
        settings = metadata_settings(services.config)
        connect = self.connect if settings.listener_name == self._listener else self._connect_at(settings.listener_name)
        log_dir = next(iter(services.data.log_manager.directories.all))
        return topic_metadata(services, settings, connect, filesystem, log_dir, while_loading)

    def _broker_requests(self, client_id: str) -> BrokerRequests:
        """Requests to any broker, over connections of their own."""
        services = self._services
        timeout_ms = services.config[REQUEST_TIMEOUT_MS]
        brokers = BrokerRequests(services.broker_id, client_id, timeout_ms, self.connect, self._address_of, self._ask_here)
        self._held.push_async_callback(brokers.close)
        return brokers

    def _controller_channel(self) -> ControllerChannel:
        """A channel to the active controller, whichever broker that is."""
        services = self._services
        return ControllerChannel(
            services.metadata, self._connect_control, self._control_plane, str(services.broker_id), self._is_controller, self._ask_here
        )

    def _address_of(self, broker_id: int) -> PeerAddress | None:
        return address_in(self._services.metadata, broker_id, self._listener)

    async def on_new_session(self) -> None:
        """The broker registered again and has a new broker epoch."""
        self._services.cluster.broker_epoch = self._services.cluster.controller.broker_epoch

    async def producer_id_block(self) -> ProducerIdBlock:
        """The next block of producer ids, from the controller. Raises PeerUnavailable."""
        services = self._services
        request = AllocateProducerIdsRequest(broker_id=services.broker_id, broker_epoch=services.cluster.broker_epoch)
        timeout_ms = services.config[REQUEST_TIMEOUT_MS]
        response = await self._to_controller.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, request, timeout_ms)
        assert isinstance(response, AllocateProducerIdsResponse)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            is_denied = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            advice = "; give the principal of this broker ClusterAction on the cluster, or name it in super.users" if is_denied else ""
            raise PeerUnavailable(f"the controller refused with {code.name}{advice}")
        first = response.producer_id_start
        return ProducerIdBlock(services.broker_id, first, first + response.producer_id_len - 1)

    async def hand_over(self) -> None:
        """Move leaderships to other brokers before the broker stops, while it still serves
        (`controlled.shutdown.enable`)."""
        services = self._services
        if services.config[CONTROLLED_SHUTDOWN_ENABLE] and len(services.metadata.brokers) > 1:
            from ottla.broker.cluster.controlled_shutdown import ControlledShutdown, Leaving

            services.data.replica_manager.followers = Leaving(services.data.replica_manager.followers)
            shutdown = ControlledShutdown(
                services.config,
                services.metadata,
                services.data.replica_manager,
                self.connect,
                self._is_controller,
                self._ask_here,
                lambda: services.administration.store.is_connected,
            )
            await shutdown.run(services.broker_id, services.cluster.broker_epoch)
        if self._is_controller():
            try:
                async with asyncio.timeout(DELIVERY_SECONDS):
                    await services.cluster.controller.delivered()
            except TimeoutError:
                logger.warning("not every broker received the controller's last decisions; the next controller sends them")

    async def close(self) -> None:
        """Close the started components and the connections."""
        await self._held.aclose()

    def _is_controller(self) -> bool:
        return self._services.cluster.controller.is_active
