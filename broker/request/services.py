"""What a handler may delegate to. `broker/server.py` fills it; handlers reach it as `context.broker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from broker.cluster.auto_topics import AutoTopics
    from broker.cluster.control_requests import ControlRequests
    from broker.cluster.producer_ids import ProducerIds
    from broker.configuration.dynamic_config import DynamicConfig
    from broker.fetching.fetch_sessions import FetchSessionCache
    from broker.groups.coordinator import GroupCoordinator
    from broker.loop.purgatory import Purgatory
    from broker.request.first_picture import FirstPicture
    from broker.request.turns import Turns
    from broker.security.authorizer import Authorizer
    from config.broker import BrokerConfig
    from controller.admin.config_admin import ConfigAdmin
    from controller.admin.metadata_waits import MetadataWaits
    from controller.admin.partition_growth import PartitionGrowth
    from controller.admin.topic_admin import TopicAdmin
    from controller.controller import Controller
    from controller.store.metadata_store import MetadataStore
    from replication.control.replica_manager import ReplicaManager
    from replication.follower.fetcher_pool import FetcherPool
    from replication.ports.cluster import MetadataCache
    from storage.disk.clock import Clock
    from storage.manager.log_manager import LogManager


class Services:
    """The parts of one running broker. Assigned once, before the first request; all of them live on the broker's event loop."""

    __slots__ = (
        "authorizer",
        "auto_topics",
        "broker_epoch",
        "broker_id",
        "clock",
        "cluster",
        "cluster_id",
        "config",
        "config_admin",
        "control_requests",
        "controller",
        "delete_records_purgatory",
        "dynamic_config",
        "error_counts",
        "fetch_max_bytes",
        "fetch_purgatory",
        "fetch_sessions",
        "fetcher_pool",
        "first_picture",
        "groups",
        "log_manager",
        "metadata_waits",
        "partition_growth",
        "produce_purgatory",
        "producer_ids",
        "replica_manager",
        "store",
        "topic_admin",
        "turns",
        "workers",
    )

    broker_id: int
    broker_epoch: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    cluster: MetadataCache
    replica_manager: ReplicaManager
    log_manager: LogManager
    controller: Controller
    store: MetadataStore
    config_admin: ConfigAdmin
    topic_admin: TopicAdmin
    partition_growth: PartitionGrowth
    metadata_waits: MetadataWaits
    auto_topics: AutoTopics
    control_requests: ControlRequests
    dynamic_config: DynamicConfig
    groups: GroupCoordinator
    producer_ids: ProducerIds
    authorizer: Authorizer
    error_counts: dict[int, int]
    """How often answers had an error code, by API key << 16 | code & 0xFFFF: those of the hot path, and all while metrics are served."""
    fetch_sessions: FetchSessionCache
    fetcher_pool: FetcherPool | None
    """None where no other broker can be followed."""
    first_picture: FirstPicture
    produce_purgatory: Purgatory
    fetch_purgatory: Purgatory
    delete_records_purgatory: Purgatory
    fetch_max_bytes: int
    """`fetch.max.bytes`, read per Fetch."""
    turns: Turns
    """Where long work is done a little at a time."""
    workers: Executor
    """Threads for what blocks or computes long: recompression, cold reads."""
