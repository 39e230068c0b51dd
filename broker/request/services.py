"""Holds the parts of a broker that its handlers delegate to. `Broker` in `broker/server.py` makes them before the first request.

Handlers reach `Services` as `context.broker`. `Services` has the parts that all handlers need, and a group of services for each subject.
Each group is complete when it is made, and `Services` is made of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    from ottla.broker.telemetry.client_telemetry import ClientTelemetry
    from ottla.config.broker import BrokerConfig
    from ottla.controller.admin.config_admin import ConfigAdmin
    from ottla.controller.admin.metadata_waits import MetadataWaits
    from ottla.controller.admin.partition_growth import PartitionGrowth
    from ottla.controller.admin.topic_admin import TopicAdmin
    from ottla.controller.controller import Controller
    from ottla.controller.store.metadata_store import MetadataStore
    from ottla.coordination.groups.coordinator import GroupCoordinator
    from ottla.coordination.shares.leader import ShareLeader
    from ottla.coordination.shares.state.coordinator import ShareCoordinator
    from ottla.coordination.transactions.coordinator import TransactionCoordinator
    from ottla.coordination.transactions.verification import TransactionVerifier
    from ottla.replication.control.replica_manager import ReplicaManager
    from ottla.replication.follower.fetcher_pool import FetcherPool
    from ottla.replication.ports.cluster import MetadataCache
    from ottla.replication.reading.remote_read import RemoteReads
    from ottla.replication.remote.remote_log_manager import RemoteLogManager
    from ottla.replication.waiting.purgatory import Purgatory
    from ottla.storage.disk.clock import Clock
    from ottla.storage.manager.log_manager import LogManager


@dataclass(slots=True, kw_only=True, eq=False)
class DataServices:
    """Serves records: the replicas of this broker, and the requests that wait for replicas."""

    replica_manager: ReplicaManager
    log_manager: LogManager
    fetch_sessions: FetchSessionCache
    produce_purgatory: Purgatory
    fetch_purgatory: Purgatory
    remote_fetch_purgatory: Purgatory
    """Has the fetches of consumers that read from the remote store."""
    delete_records_purgatory: Purgatory
    refused_records: RefusedRecords
    fetch_max_bytes: int
    """`fetch.max.bytes`, read per Fetch."""


@dataclass(slots=True, kw_only=True, eq=False)
class AdministrationServices:
    """Administers topics and configurations: the metadata store, and the writes to it on behalf of clients."""

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


@dataclass(slots=True, kw_only=True, eq=False)
class ClusterServices:
    """Connects this broker to its cluster: its registration, the controller, the requests between brokers."""

    controller: Controller
    control_requests: ControlRequests
    features: FinalizedFeatures
    first_metadata: FirstMetadata
    producer_ids: ProducerIds
    fetcher_pool: FetcherPool | None
    """None where there can be no other broker to follow."""


@dataclass(slots=True, kw_only=True, eq=False)
class CoordinatorServices:
    """Coordinates clients (consumer groups, transactions of producers, the state of share groups), and asks such coordinators."""

    groups: GroupCoordinator
    shares: ShareCoordinator
    transactions: TransactionCoordinator
    share_leader: ShareLeader
    transaction_verifier: TransactionVerifier


@dataclass(slots=True, kw_only=True, eq=False)
class RemoteServices:
    """Stores closed segments in a remote store, and reads them there (tiered storage)."""

    storage: RemoteStorage
    reads: RemoteReads
    metadata: TopicMetadata
    tasks: RemoteLogManager
    """Copies and removes segments."""


@dataclass(slots=True, kw_only=True, eq=False)
class Services:
    """The parts of one running broker; all of them live on the broker's event loop."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    listed: ListedApis
    metadata: MetadataCache
    authorizer: Authorizer
    quotas: ClientQuotas
    running: RunningRequests
    """Runs the handlers that are coroutines."""
    expansion: Expansion
    """Runs work on compressed records within a limit of memory."""
    workers: Executor
    """Threads for work that blocks or computes long: recompression, cold reads."""
    error_counts: dict[int, int] = field(default_factory=dict)
    """Answers with an error code, by API key << 16 | code & 0xFFFF. The hot path always counts, others while metrics are served."""
    data: DataServices
    administration: AdministrationServices
    cluster: ClusterServices
    coordinators: CoordinatorServices
    remote: RemoteServices | None
    """None without tiered storage."""
