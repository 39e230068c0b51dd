"""Wires one broker from the parts of all floors; no other module knows all floors.

A `Broker` starts and stops inside any event loop, on port 0 if asked, and leaves nothing behind. The command line runs one; a test runs
several in its own process. The start is safe because of its order:

1. The directories are locked, and checked to belong to this broker, before anything is read.
2. The metadata store is opened before logs are loaded, since it holds the configuration of the logs.
3. Addresses are checked before the first file is written, and bound before the broker registers, because the registration contains them.
4. Requests are served once this broker knows which partitions it leads.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.cluster.auto_topics import AutoTopics
from ottla.broker.cluster.cluster_wiring import ClusterWiring, FollowerParts
from ottla.broker.cluster.control_requests import ControlRequests
from ottla.broker.cluster.features import FinalizedFeatures, UnsupportedFeatures
from ottla.broker.cluster.former_replicas import set_former_replicas_aside
from ottla.broker.cluster.itself import Itself
from ottla.broker.cluster.log_dir_failures import LogDirFailures
from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.broker.configuration.certificate_renewal import CertificateRenewal
from ottla.broker.configuration.client_quotas import StoredQuotas, configured_quotas
from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.broker.configuration.ip_quotas import IpQuotas
from ottla.broker.configuration.reconfiguration import Reconfiguration
from ottla.broker.configuration.resource_configs import CLIENT_METRICS, GROUPS, ResourceConfigs
from ottla.broker.configuration.scram_credentials import ScramCredentials
from ottla.broker.configuration.topic_config_changes import TopicConfigChanges
from ottla.broker.coordinators import make_coordinators, start_coordinators
from ottla.broker.environment import Environment
from ottla.broker.fetching.fetch_sessions import FetchSessionCache
from ottla.broker.handlers.table import SERVED
from ottla.broker.loop.background import LoopBackground, in_thread
from ottla.broker.loop.collector import collector_paused, collector_paused_for_tables, collector_resting
from ottla.broker.metadata_store import may_have_metadata, open_metadata_store
from ottla.broker.metrics.request_log import RequestLog
from ottla.broker.network.acceptor import BindFailed
from ottla.broker.network.host_names import known_hosts
from ottla.broker.network.limits import limits_of
from ottla.broker.remote.metadata.snapshot_files import SnapshotFiles
from ottla.broker.request.expansion import Expansion
from ottla.broker.request.first_metadata import FirstMetadata
from ottla.broker.request.listed_apis import ListedApis
from ottla.broker.request.refused_records import RefusedRecords
from ottla.broker.request.running import RunningRequests
from ottla.broker.request.services import AdministrationServices, ClusterServices, DataServices, RemoteServices, Services
from ottla.broker.security.sasl.key_sets import KeySets
from ottla.broker.serving.access_control import load_access_control
from ottla.broker.serving.dispatch import Dispatcher
from ottla.broker.serving.listener_security import ListenerSecurity
from ottla.broker.start_checks import (
    Unsupported,
    check_belongings,
    check_broker_id,
    check_configuration_may_differ,
    check_znodes,
    refuse_unsupported,
)
from ottla.broker.telemetry.client_telemetry import ClientTelemetry
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.general import BROKER_ID, BROKER_RACK, RESERVED_BROKER_MAX_ID
from ottla.config.keys.network import (
    DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS,
    FETCH_MAX_BYTES,
    FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS,
)
from ottla.config.keys.own import (
    OTTLA_INTERNAL_TOPICS_CAN_GROW,
    OTTLA_METRICS_LISTENER,
    OTTLA_REMOTE_LEFTOVERS_INTERVAL_MS,
    OTTLA_SLOW_REQUEST_MS,
)
from ottla.config.keys.replication import (
    INTER_BROKER_PROTOCOL_VERSION,
    REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    REPLICA_LAG_TIME_MAX_MS,
    REPLICA_SELECTOR_CLASS,
)
from ottla.config.keys.security import (
    DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
)
from ottla.config.keys.tiered import REMOTE_LOG_STORAGE_SYSTEM_ENABLE
from ottla.config.listeners import EndPoint
from ottla.config.passwords import encoder_of, old_encoder_of
from ottla.config.sasl import offers_scram, sasl_listener
from ottla.config.schema.metadata_version import is_at_least
from ottla.config.topic import TopicConfig
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.admin.features import finalize_in_new_cluster, supported_features
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.admin.partition_growth import PartitionGrowth
from ottla.controller.admin.topic_admin import TopicAdmin
from ottla.controller.controller import Controller
from ottla.controller.errors import ControllerError, StoreError
from ottla.controller.registration import in_session, next_broker_sequence, prepare_store, registration_version
from ottla.controller.znodes.layout import BrokerRegistration, Endpoint
from ottla.controller.znodes.topic_ids import frees_names
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.coordination.internal_topics import INTERNAL_TOPICS
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.replica_selector import selector_of
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.errors import StorageError
from ottla.storage.manager.log_loading import Progress
from ottla.storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from ottla.broker.metrics.endpoint import MetricsEndpoint
    from ottla.broker.metrics.request_metrics import RequestMetrics
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.replication.reading.remote_read import RemoteReads
    from ottla.replication.remote.aux_state import AuxStates

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 30.0
"""Time for unanswered requests when the only broker of a cluster stops, seconds."""
DRAIN_AMONG_OTHERS_SECONDS = 2.0
"""The same for a broker among others, seconds. Requests that remain wait for followers, whose fetches this broker no longer serves; the
next leader decides their outcome."""

_STARTING = "starting"

FIRST_WITH_FAILED_DIRECTORIES = "1.0-IV0"
"""The first inter.broker.protocol.version with which brokers report failed log directories."""

REQUEST_LOG_BEAT_MS = 1000
"""How often the log of slow requests reports lines that it left out, ms."""

SENSOR_CHECK_MS = 60_000
"""Interval of looking for idle sensors of quotas, ms; looking at 40,000 takes some milliseconds."""

EXPIRY_CHECK_MS = 10_000
"""Interval of looking for silent clients with pushed metrics, ms."""

COLLECTOR_THRESHOLDS = (2_000, 5, 10_000)
"""Thresholds of the garbage collector's generations while the broker runs. A pass stops the loop for a time that grows with the number of
new objects, so passes are frequent and short, although all passes together may take longer. A pass over all older objects takes longest;
it is as rare as with the thresholds of the start."""


EXPECTED = (
    Unsupported,
    UnsupportedFeatures,
    ConfigError,
    StorageError,
    ControllerError,
    StoreError,
    MalformedZNode,
    BindFailed,
)
"""Exceptions of a start whose text is one line for the operator."""


class CannotStart(Exception):
    """The broker does not start; the text is one line for the operator."""


class Broker:
    """See the module. `start` reads `config`, and sets `addresses` and `services`."""

    services: Services

    def __init__(self, config: BrokerConfig, environment: Environment | None = None) -> None:
        self.config = config
        self._environment = environment or Environment()
        self.addresses: list[str] = []
        self.failed = False
        self.metrics: MetricsEndpoint | None = None
        self._clock = self._environment.clock
        self._random = self._environment.random
        self.on_fatal: Callable[[], None] = lambda: None
        """Called when the broker cannot continue because its last log directory failed. The owner of the broker replaces this."""
        self._stage = _STARTING
        self._progress: Progress | None = None
        """Of the opening of the logs, once that is known."""
        self._problem: ConfigError | None = None
        """The problem of the static configuration of listeners, which the dynamic one may solve."""
        self._security = ListenerSecurity(config, self._clock, self._environment.random_bytes, self._environment.clock_ns)
        of_process = (collector_resting, collector_paused) if self._environment.is_process else (nullcontext, nullcontext)
        self._resting, self._paused = of_process
        self._held = AsyncExitStack()
        """Releases what the start has acquired so far."""

    # -- start -------------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """One line for a service manager."""
        progress = self._progress
        if self._stage == _STARTING and progress is not None and progress.opened < progress.total:
            return f"{_STARTING}, {progress.opened} of {progress.total} logs are open"
        return self._stage

    async def start(self) -> list[str]:
        """Start and listen. Returns the addresses as `LISTENER://host:port`. Raises CannotStart, and leaves nothing behind then."""
        began = time.monotonic()
        try:
            await self._start()
        except BaseException as error:
            await self._held.aclose()
            if isinstance(error, EXPECTED):
                raise CannotStart(str(error)) from None
            raise
        self._stage = f"broker {self.services.broker_id} of cluster {self.services.cluster_id} is ready"
        logger.info(
            "broker %d of cluster %s is ready after %d ms: %s",
            self.services.broker_id,
            self.services.cluster_id,
            (time.monotonic() - began) * 1000,
            ", ".join(self.addresses),
        )
        return self.addresses

    async def _start(self) -> None:
        config = self.config
        refuse_unsupported(config)
        problem = self._security.problem()
        if problem is not None and not may_have_metadata(config):
            raise problem
        if self._environment.is_process:
            # The start opens thousands of logs. With the default thresholds, passes over new objects would cost a sixth of the start.
            gc.set_threshold(200_000, 20, 100)
        await self._open_metrics()
        self._executor = self._environment.workers(config)
        self._held.callback(self._executor.shutdown)
        self._timing_wheel = TimingWheel(self._clock.monotonic, self._environment.call_later)
        self._held.callback(self._timing_wheel.close)
        # Before anything is written: addresses and keys that cannot be had end the start.
        await self._environment.check_addresses(config)
        self._key_sets = KeySets(self._executor, self._clock)
        self._held.push_async_callback(self._key_sets.close)
        if problem is None:  # else the dynamic configuration has to complete that of the listeners first
            try:
                await self._load_key_sets()
            except ConfigError as error:
                if not may_have_metadata(config):
                    raise
                problem = error
        self._problem = problem
        storage = await self._probe_remote_store() if config[REMOTE_LOG_STORAGE_SYSTEM_ENABLE] else None
        await self._open_directories()
        await self._open_store()
        reads = None
        if storage is not None:
            await storage.claim(self._cluster_id)
            reads = await storage.open_reads(self.log_manager.directories.live[0].path)
        await self._load_logs()
        self._make_services(None if storage is None or reads is None else (storage, reads))
        await self._bind()
        self._held.push_async_callback(self.controller.shutdown)
        self._cluster.begin(self.services, self._background, self._send_clients_away)
        # Before the broker registers: from then on it may become a coordinator.
        await start_coordinators(self._held, self.services.coordinators, self.store)
        self._held.push_async_callback(self.services.cluster.producer_ids.stop)
        if self.services.remote is not None:
            self._begin_remote(self.services.remote)
        await self._join_cluster()
        self.socket_server.accept()
        if self.metrics is not None:
            self.metrics.on_ready()
        if self._environment.is_process:
            # Later passes skip the objects that live until the end. No collection comes first: a start leaves next to no garbage, and
            # a pass would delay it.
            gc.freeze()
            gc.set_threshold(*COLLECTOR_THRESHOLDS)

    async def _load_key_sets(self) -> None:
        """Read the keys that verify signed tokens, for the listeners of the configuration as it is known now."""
        for endpoint in self.config.listeners.listeners:
            if endpoint.security_protocol.uses_sasl:
                await self._key_sets.load(sasl_listener(self.config.current, endpoint.listener_name))

    async def _probe_remote_store(self) -> RemoteStorage:
        """Open the remote store, and ask it for the first time, before anything is written."""
        from ottla.broker.remote.remote_storage import RemoteStorage  # few brokers have one

        environment = self._environment
        is_apart, access = environment.has_store_process, environment.remote_store
        storage = RemoteStorage(self.config, environment.file_system, self._executor, self._clock, access, is_apart=is_apart)
        self._held.push_async_callback(storage.close)
        await storage.probe()
        return storage

    async def _open_metrics(self) -> None:
        listener = self.config[OTTLA_METRICS_LISTENER]
        if listener is not None:
            from ottla.broker.metrics.endpoint import MetricsEndpoint

            self.metrics = MetricsEndpoint(listener)
            self._held.push_async_callback(self.metrics.close)
            await self.metrics.start()

    async def _open_directories(self) -> None:
        self._background = LoopBackground(self._executor, self._environment.call_later)
        self.log_manager = LogManager(
            self.config,
            self._topic_config_of,
            self._environment.file_system,
            self._clock,
            self._background,
            random=self._random,
            on_no_log_dir=self._fail,
            needs_all_directories=not is_at_least(self.config[INTER_BROKER_PROTOCOL_VERSION], FIRST_WITH_FAILED_DIRECTORIES),
        )
        self._progress = self.log_manager.progress
        await in_thread(self._executor, self.log_manager.open)
        self._held.callback(self.log_manager.directories.unlock)

    async def _open_store(self) -> None:
        """Open the metadata store, find this broker's identity in it, and prepare to read configuration from it."""
        config, random_bytes = self.config, self._environment.random_bytes
        self.store = self._environment.metadata_store(
            lambda: open_metadata_store(config, self._environment.store_clock, self.log_manager.directories.live)
        )
        self._held.push_async_callback(self.store.close)
        await in_session(self.store, self._find_identity)
        self._features = FinalizedFeatures(self.store, self._fail)
        self._held.push_async_callback(self._features.close)
        await in_session(self.store, self._features.load)
        admin = self._config_admin = ConfigAdmin(self.store, self._broker_id, config, encoder_of(config, random_bytes))
        self._dynamic_config = DynamicConfig(config, self.store, admin, self._broker_id, self._clock, old_encoder_of(config, random_bytes))
        self._group_configs = ResourceConfigs(GROUPS, admin, self._dynamic_config)
        self._client_metrics = ResourceConfigs(CLIENT_METRICS, admin, self._dynamic_config)

    async def _find_identity(self) -> None:
        directories = self.log_manager.directories.live
        await check_belongings(self.config, self.store, directories)
        if not self.config.standalone:
            await check_znodes(self.config, self.store)
        if self._problem is not None:
            await check_configuration_may_differ(self.store, self._known_broker_id(), self._problem)
        self._cluster_id = await prepare_store(self.store, self._environment.random_bytes)
        if self.config.standalone:
            await finalize_in_new_cluster(self.store, self.config)
        self._broker_id = await self._find_broker_id()
        await check_broker_id(self._broker_id, self.config, self.store, directories, self._environment.is_listening)

    async def _load_logs(self) -> None:
        await in_thread(self._executor, self.log_manager.identify, self._cluster_id, self._broker_id)
        self._held.push_async_callback(self._dynamic_config.close)
        await in_session(self.store, self._dynamic_config.load)
        for configs in (self._group_configs, self._client_metrics):
            await in_session(self.store, configs.load)
        random, random_bytes = self._random.random, self._environment.random_bytes
        self._access_control = await load_access_control(
            self._held, self.config, self.store, self._clock, self._executor, random, random_bytes
        )
        # Before logs are loaded: wrong logins, keys or certificates in the dynamic configuration should end the start at once, too.
        if (problem := self._security.problem()) is not None:
            raise problem
        await self._load_key_sets()
        await in_session(self.store, partial(set_former_replicas_aside, self.store, self.config, self.log_manager, self._executor))
        await in_thread(self._executor, self.log_manager.load, on_cancelled=self.log_manager.stop_loading)
        self._held.push_async_callback(self._close_logs)

    async def _close_logs(self) -> None:
        self._background.close()
        await in_thread(self._executor, self.log_manager.shutdown)

    def _make_services(self, remote_store: tuple[RemoteStorage, RemoteReads] | None) -> None:
        config, environment, clock = self.config, self._environment, self._clock
        expansion = Expansion(config, self._executor)
        running = RunningRequests(environment.clock_ns, while_large=self._resting)
        telemetry = ClientTelemetry(config, self._client_metrics, clock, expansion, environment.random_bytes)
        self._held.callback(telemetry.close)
        levels = self._features.level
        listed = ListedApis(SERVED, levels, is_own_cluster=config.standalone, has_subscriptions=telemetry.has_subscriptions)
        self._features.on_change(listed.update)
        self._client_metrics.on_change(telemetry.on_change)
        self._client_metrics.on_change(listed.on_subscriptions)
        metadata = MetadataCache()
        itself = Itself(self._broker_id, config.listeners.inter_broker_listener_name, lambda: self.services)
        self._cluster = wiring = ClusterWiring(config, itself, metadata, clock, environment.connect, self._security.of_peers)
        self._held.push_async_callback(wiring.close)
        administration = self._administration_services(metadata, telemetry, MetadataWaits(running.on_wait))
        producer_ids = ProducerIds(wiring.producer_id_block)
        remote, aux_states = self._remote_services(remote_store, administration.topic_admin, producer_ids)
        followers = wiring.follower_parts(self.log_manager.report_failure, aux_states)
        data = self._data_services(metadata, followers, remote)
        cluster = self._cluster_services(administration, data, producer_ids, followers)
        self._topic_config_changes(data, cluster)
        workers, random_bytes = self._executor, environment.random_bytes
        self.services = Services(
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            config=config,
            clock=clock,
            listed=listed,
            metadata=metadata,
            authorizer=self._access_control.authorizer,
            quotas=configured_quotas(config, environment.clock_ns),
            running=running,
            expansion=expansion,
            workers=workers,
            data=data,
            administration=administration,
            cluster=cluster,
            coordinators=make_coordinators(
                config, clock, self._timing_wheel, workers, random_bytes, data, administration, cluster, wiring, self._paused
            ),
            remote=remote,
        )

    def _topic_config_changes(self, data: DataServices, cluster: ClusterServices) -> None:
        changes = TopicConfigChanges(self.config, self._dynamic_config, data.log_manager, data.replica_manager, cluster.controller)
        self._held.push_async_callback(changes.close)

    def _remote_services(
        self, opened: tuple[RemoteStorage, RemoteReads] | None, topic_admin: TopicAdmin, producer_ids: ProducerIds
    ) -> tuple[RemoteServices | None, AuxStates | None]:
        if opened is None:
            return None, None
        from ottla.broker.remote.tasks import make_tasks

        storage, reads = opened
        log_dir = next(iter(self.log_manager.directories.all))
        snapshots = partial(SnapshotFiles, log_dir, self._environment.file_system, self._executor, self._clock, self._cluster_id)
        while_loading = collector_paused_for_tables if self._environment.is_process else nullcontext
        metadata = self._cluster.remote_metadata(snapshots, topic_admin, producer_ids, while_loading)
        tasks, aux_states = make_tasks(self.config, self._broker_id, self._clock, storage, metadata, self._background, self._random)
        return RemoteServices(storage=storage, reads=reads, metadata=metadata, tasks=tasks), aux_states

    def _cluster_services(
        self,
        administration: AdministrationServices,
        data: DataServices,
        producer_ids: ProducerIds,
        followers: FollowerParts | None,
    ) -> ClusterServices:
        waits, replicas = administration.metadata_waits, data.replica_manager
        first_metadata = FirstMetadata(replicas.cluster, waits, replicas)
        listeners = self._cluster.controller_listeners(self.store, waits, first_metadata, replicas, self._background)
        control_requests = ControlRequests(replicas, self._dynamic_config, waits, self._paused, listeners)
        self.controller = self._make_controller(control_requests, waits)
        return ClusterServices(
            controller=self.controller,
            control_requests=control_requests,
            features=self._features,
            first_metadata=first_metadata,
            producer_ids=producer_ids,
            fetcher_pool=None if followers is None else followers.fetcher_pool,
        )

    def _data_services(self, metadata: MetadataCache, followers: FollowerParts | None, remote: RemoteServices | None) -> DataServices:
        config, wheel = self.config, self._timing_wheel
        failures = LogDirFailures(self.store, self._broker_id)
        replica_manager = ReplicaManager(
            self._broker_id,
            self.log_manager,
            metadata,
            self._clock,
            config[REPLICA_LAG_TIME_MAX_MS],
            *(() if followers is None else (followers.fetcher_pool, followers.isr_proposals, followers.leader_quota)),
            replica_selector=selector_of(config[REPLICA_SELECTOR_CLASS]),
            on_replicas_offline=failures.report,
            frees_names=frees_names(config),
        )
        self.log_manager.future_logs.cut()
        if remote is not None:
            from ottla.broker.remote.tasks import listen_to

            listen_to(replica_manager, remote.tasks)
        self._held.push_async_callback(failures.close)
        return DataServices(
            replica_manager=replica_manager,
            log_manager=self.log_manager,
            fetch_sessions=FetchSessionCache(config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], self._random.getrandbits),
            produce_purgatory=Purgatory("Produce", wheel, config[PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS]),
            fetch_purgatory=Purgatory("Fetch", wheel, config[FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS]),
            remote_fetch_purgatory=Purgatory("RemoteFetch", wheel),
            delete_records_purgatory=Purgatory("DeleteRecords", wheel, config[DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS]),
            refused_records=RefusedRecords(),
            fetch_max_bytes=config[FETCH_MAX_BYTES],
        )

    def _administration_services(self, cluster: MetadataCache, telemetry: ClientTelemetry, waits: MetadataWaits) -> AdministrationServices:
        config, store, randrange = self.config, self.store, self._random.randrange
        topic_admin = TopicAdmin(store, config, cluster, waits, self._environment.random_bytes, randrange)
        may_grow = config[OTTLA_INTERNAL_TOPICS_CAN_GROW]
        return AdministrationServices(
            store=store,
            config_admin=self._config_admin,
            topic_admin=topic_admin,
            partition_growth=PartitionGrowth(store, cluster, waits, randrange, INTERNAL_TOPICS, may_grow=may_grow),
            metadata_waits=waits,
            auto_topics=AutoTopics(config, topic_admin),
            dynamic_config=self._dynamic_config,
            group_configs=self._group_configs,
            client_metrics=self._client_metrics,
            telemetry=telemetry,
            acls=self._access_control.acls,
            delegation_tokens=self._access_control.delegation_tokens,
        )

    def _make_controller(self, control_requests: ControlRequests, waits: MetadataWaits) -> Controller:
        features = self._features
        controller = Controller(
            self.store,
            self._broker_id,
            self.config,
            self._clock,
            self._environment.random_bytes,
            self._cluster.channels(control_requests),
            self.config.listeners.inter_broker_listener_name,
            self._registration,
            self._environment.is_listening,
            self._paused,
            lambda: features.levels,
            waits.notify,
        )
        controller.on_new_session(features.reload)
        for listener in self._access_control.session_listeners:
            controller.on_new_session(listener)
        controller.on_new_session(self._dynamic_config.on_new_session)
        return controller

    async def _bind(self) -> None:
        listeners = self.config.listeners
        endpoints = listeners.listeners
        hosts = await known_hosts(self.config)
        self.socket_server = server = self._environment.socket_server(limits_of(self.config, hosts))
        self.dispatcher = dispatcher = Dispatcher(self.services, self._measured_requests())
        self._held.push_async_callback(dispatcher.close)
        protected = listeners.inter_broker_listener_name if len(endpoints) > 1 else None
        administration = self.services.administration
        credentials = ScramCredentials(administration.config_admin, administration.dynamic_config, self._environment.random_bytes)
        self._held.push_async_callback(credentials.close)
        await in_session(self.store, credentials.load)
        self.controller.on_new_session(credentials.on_new_session)
        await self._load_key_sets()
        for endpoint in endpoints:
            if endpoint.security_protocol.uses_sasl and offers_scram(sasl_listener(self.config.current, endpoint.listener_name)):
                await in_session(self.store, partial(credentials.load_secret, self.store))
        authentication = partial(self._security.authentication, self.services, credentials, self._key_sets, dispatcher)
        authorizer, quotas = self.services.authorizer, self.services.quotas
        await in_session(self.store, StoredQuotas(administration.config_admin, administration.dynamic_config, quotas).load)
        self._background.schedule("quota-sensors", SENSOR_CHECK_MS, SENSOR_CHECK_MS, quotas.expire)
        self._background.schedule("client-telemetry", EXPIRY_CHECK_MS, EXPIRY_CHECK_MS, administration.telemetry.expire)
        await server.start(
            endpoints,
            dispatcher,
            protected,
            authorizer,
            quotas,
            authentication=authentication,
            accepting=False,
            tls_of=self._security.tls_of,
        )
        self._held.push_async_callback(server.close)
        self.addresses = [endpoint.connection_string for endpoint in self._advertised()]
        ip_quotas = IpQuotas(self.services.administration.config_admin, self.services.administration.dynamic_config, server.quotas)
        await in_session(self.store, ip_quotas.load)
        self._held.push_async_callback(ip_quotas.close)
        prepare = partial(self._security.prepare, credentials, self.store)
        broker_id = self.services.broker_id
        reconfiguration = Reconfiguration(self.config, hosts, self.socket_server, self.store, broker_id, self._registration, prepare)
        reconfiguration.start()
        CertificateRenewal(self.config, server).start()
        self._held.push_async_callback(reconfiguration.close)

    def _measured_requests(self) -> RequestMetrics | None:
        """Times requests for the metrics, for the log of slow ones, or for both."""
        services, environment = self.services, self._environment
        slow_ms = self.config[OTTLA_SLOW_REQUEST_MS]
        if self.metrics is None and slow_ms is None and not environment.measures_requests:
            return None
        stats = services.data.replica_manager.topic_stats
        measured = environment.request_metrics(environment.clock_ns, stats, services.error_counts, RequestLog(slow_ms))
        if self.metrics is not None:
            self.metrics.attach(services, self.socket_server, measured)
        else:
            self._background.schedule("request-log", REQUEST_LOG_BEAT_MS, REQUEST_LOG_BEAT_MS, measured.on_beat)
        return measured

    def _begin_remote(self, remote: RemoteServices) -> None:
        from ottla.broker.remote.tasks import leftovers

        remote.metadata.start()
        self._held.push_async_callback(remote.metadata.close)
        self._held.push_async_callback(remote.tasks.stop)
        if interval_ms := self.config[OTTLA_REMOTE_LEFTOVERS_INTERVAL_MS]:
            search = leftovers(self.services, remote.storage, remote.tasks, self._environment.file_system, interval_ms)
            search.start()
            self._held.push_async_callback(search.close)
        remote.storage.watch.start()
        self._held.push_async_callback(remote.storage.watch.close)

    async def _join_cluster(self) -> None:
        """Register, take part in the controller's election, and lead the partitions of this broker, before the first request."""
        if self.config.standalone:  # on ZooKeeper a raise is a decision against Apache Kafka 3.9, which needs no reminder
            self._features.report_raisable()
        await self.controller.startup()
        await self.controller.delivered()
        await self._features.reload()  # the first controller of a cluster has created the node
        self.log_manager.start()
        interval_ms = self.config[REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS]
        self._background.schedule(
            "high-watermark-checkpoint", interval_ms, interval_ms, self.services.data.replica_manager.checkpoint_high_watermarks
        )
        check_ms = self.config[DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS]
        self._background.schedule("delegation-token-removal", check_ms, check_ms, self._maybe_remove_expired_tokens)

    def _maybe_remove_expired_tokens(self) -> None:
        """Have the broker of the active controller remove expired delegation tokens."""
        tokens = self._access_control.delegation_tokens
        if tokens is not None and self.controller.is_active:
            tokens.begin_removal()

    def _send_clients_away(self) -> None:
        """Close all connections, so that clients look for the current leaders before they come back."""
        for connection in self.socket_server.connections():
            connection.close()

    def _known_broker_id(self) -> int | None:
        """`broker.id`, or the id stored in the directories; None for a new broker without one."""
        configured = self.config[BROKER_ID]
        return configured if configured >= 0 else self.log_manager.stored_broker_id

    async def _find_broker_id(self) -> int:
        """The known id, or a new one from the store (reserved.broker.max.id + n)."""
        known = self._known_broker_id()
        if known is not None:
            return known
        return self.config[RESERVED_BROKER_MAX_ID] + await next_broker_sequence(self.store)

    def _topic_config_of(self, topic: str) -> TopicConfig:
        return self._dynamic_config.topic_config_of(topic)

    def _advertised(self) -> list[EndPoint]:
        """The advertised listeners that are bound; port 0 is replaced by the port to which the listener of that name is bound."""
        bound = self.socket_server.bound
        found = []
        for endpoint in self.config.listeners.advertised:
            if (own := bound.get(endpoint.listener_name)) is None:
                continue  # a change of the running broker named an address that cannot be bound
            host = endpoint.host or socket.getfqdn()
            found.append(EndPoint(endpoint.listener_name, host, endpoint.port or own.port, endpoint.security_protocol))
        return found

    def _registration(self) -> BrokerRegistration:
        return BrokerRegistration(
            endpoints=tuple(
                Endpoint(endpoint.listener_name, endpoint.security_protocol.name, endpoint.host, endpoint.port)
                for endpoint in self._advertised()
            ),
            rack=self.config[BROKER_RACK],
            timestamp_ms=self._clock.now_ms(),
            features=supported_features(),
            version=registration_version(self.config[INTER_BROKER_PROTOCOL_VERSION]),
        )

    # -- the end -----------------------------------------------------------------------------------------------------------

    def _fail(self) -> None:
        """Report that the broker cannot continue."""
        self.failed = True
        self.on_fatal()

    async def stop(self, forced: asyncio.Event | None = None) -> None:
        """Hand over leadership, stop accepting, finish requests in flight, flush, write checkpoints and the clean-shutdown marker.

        Setting `forced` skips the waiting; no acknowledged record is lost by that.
        """
        logger.info("broker %d stops", self.services.broker_id)
        self._stage = "stopping"
        if self.metrics is not None:
            self.metrics.on_stopping()
        waits: set[asyncio.Future[object]] = {asyncio.ensure_future(self._leave())}
        if forced is not None:
            waits.add(asyncio.ensure_future(forced.wait()))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await self._held.aclose()
        logger.info("broker %d stopped", self.services.broker_id)

    async def _leave(self) -> None:
        try:
            await self._cluster.hand_over(self.services)
        except Exception:  # a fault of this broker: requests in flight would be cut off, too
            logger.exception("broker %d has not handed over its leaderships", self.services.broker_id)
        await self.socket_server.drain(DRAIN_SECONDS if len(self.services.metadata.brokers) <= 1 else DRAIN_AMONG_OTHERS_SECONDS)
