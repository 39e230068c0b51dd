"""Holds the parts of a broker that its handlers delegate to. `Broker` in `broker/server.py` assigns them before the first request.

Handlers reach `Services` as `context.broker`. `Services` has the parts that all handlers need, and a group of services for each subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ottla.broker.cluster.auto_topics import AutoTopics
    from ottla.broker.cluster.control_requests import ControlRequests
    from ottla.broker.cluster.features import FinalizedFeatures
    from ottla.broker.cluster.producer_ids import ProducerIds
    from ottla.broker.configuration.dynamic_config import DynamicConfig
    from ottla.broker.configuration.resource_configs import ResourceConfigs
    from ottla.broker.fetching.fetch_sessions import FetchSessionCache
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.loop.purgatory import Purgatory
    from ottla.broker.quotas.client_quotas import ClientQuotas
    from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.broker.request.expansion import Expansion
    from ottla.broker.request.first_metadata import FirstMetadata
    from ottla.broker.request.listed_apis import ListedApis
    from ottla.broker.request.refused_records import RefusedRecords
    from ottla.broker.request.running import RunningRequests
    from ottla.broker.security.acl_admin import AclAdmin
    from ottla.broker.security.authorizer import Authorizer
    from ottla.broker.security.delegation_tokens import DelegationTokens
    from ottla.broker.shares.leader import ShareLeader
    from ottla.broker.shares.state.coordinator import ShareCoordinator
    from ottla.broker.telemetry.client_telemetry import ClientTelemetry
    from ottla.broker.transactions.coordinator import TransactionCoordinator
    from ottla.broker.transactions.verification import TransactionVerifier
    from ottla.config.broker import BrokerConfig
    from ottla.controller.admin.config_admin import ConfigAdmin
    from ottla.controller.admin.metadata_waits import MetadataWaits
    from ottla.controller.admin.partition_growth import PartitionGrowth
    from ottla.controller.admin.topic_admin import TopicAdmin
    from ottla.controller.controller import Controller
    from ottla.controller.store.metadata_store import MetadataStore
    from ottla.replication.control.replica_manager import ReplicaManager
    from ottla.replication.follower.fetcher_pool import FetcherPool
    from ottla.replication.ports.cluster import MetadataCache
    from ottla.replication.reading.remote_read import RemoteReads
    from ottla.replication.remote.remote_log_manager import RemoteLogManager
    from ottla.storage.disk.clock import Clock
    from ottla.storage.manager.log_manager import LogManager


class DataServices:
    """Serves records: the replicas of this broker, and the requests that wait for replicas."""

    __slots__ = (
        "delete_records_purgatory",
        "fetch_max_bytes",
        "fetch_purgatory",
        "fetch_sessions",
        "log_manager",
        "produce_purgatory",
        "producer_ids",
        "refused_records",
        "remote_metadata",
        "remote_reads",
        "remote_storage",
        "remote_tasks",
        "replica_manager",
        "shares",
        "transaction_verifier",
    )

    replica_manager: ReplicaManager
    log_manager: LogManager
    fetch_sessions: FetchSessionCache
    produce_purgatory: Purgatory
    fetch_purgatory: Purgatory
    delete_records_purgatory: Purgatory
    producer_ids: ProducerIds
    refused_records: RefusedRecords
    transaction_verifier: TransactionVerifier
    shares: ShareLeader
    remote_metadata: TopicMetadata | None
    """None without tiered storage."""
    fetch_max_bytes: int
    """`fetch.max.bytes`, read per Fetch."""

    def __init__(self) -> None:
        self.remote_reads: RemoteReads | None = None
        self.remote_storage: RemoteStorage | None = None
        self.remote_tasks: RemoteLogManager | None = None
        """None without tiered storage, as those above."""


class CoordinatorServices:
    """Coordinates clients: consumer groups, transactions of producers, and the state of share groups."""

    __slots__ = ("groups", "shares", "transactions")

    groups: GroupCoordinator
    shares: ShareCoordinator
    transactions: TransactionCoordinator


class AdministrationServices:
    """Administers topics and configurations: the metadata store, and the writes to it on behalf of clients."""

    __slots__ = (
        "acls",
        "auto_topics",
        "client_metrics",
        "config_admin",
        "delegation_tokens",
        "dynamic_config",
        "group_configs",
        "metadata_waits",
        "partition_growth",
        "store",
        "telemetry",
        "topic_admin",
    )

    store: MetadataStore
    config_admin: ConfigAdmin
    topic_admin: TopicAdmin
    partition_growth: PartitionGrowth
    metadata_waits: MetadataWaits
    auto_topics: AutoTopics
    dynamic_config: DynamicConfig
    group_configs: ResourceConfigs
    client_metrics: ResourceConfigs
    telemetry: ClientTelemetry
    acls: AclAdmin | None
    """None without an authorizer."""
    delegation_tokens: DelegationTokens | None
    """None without a secret for delegation tokens."""


class ClusterServices:
    """Connects this broker to its cluster: its registration, the controller, the requests between brokers."""

    __slots__ = ("broker_epoch", "control_requests", "controller", "features", "fetcher_pool", "first_metadata")

    broker_epoch: int
    controller: Controller
    control_requests: ControlRequests
    features: FinalizedFeatures
    first_metadata: FirstMetadata
    fetcher_pool: FetcherPool | None
    """None where there can be no other broker to follow."""


class Services:
    """The parts of one running broker; all of them live on the broker's event loop."""

    __slots__ = (
        "administration",
        "authorizer",
        "broker_id",
        "clock",
        "cluster",
        "cluster_id",
        "config",
        "coordinators",
        "data",
        "error_counts",
        "expansion",
        "listed",
        "metadata",
        "quotas",
        "running",
        "workers",
    )

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    listed: ListedApis
    metadata: MetadataCache
    authorizer: Authorizer
    quotas: ClientQuotas
    error_counts: dict[int, int]
    """Answers with an error code, by API key << 16 | code & 0xFFFF. The hot path always counts, others while metrics are served."""
    running: RunningRequests
    """Runs the handlers that are coroutines."""
    expansion: Expansion
    """Runs work on compressed records within a limit of memory."""
    workers: Executor
    """Threads for work that blocks or computes long: recompression, cold reads."""

    def __init__(self) -> None:
        self.data = DataServices()
        self.coordinators = CoordinatorServices()
        self.administration = AdministrationServices()
        self.cluster = ClusterServices()
