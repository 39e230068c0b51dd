"""Makes the tasks of tiered storage on a broker: copies, removals, and the remote part of replication (`replication/remote`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from ottla.broker.remote.gone_topics import GoneTopics
from ottla.broker.remote.leftovers import Leftovers
from ottla.broker.remote.remote_storage import RemoteStorage
from ottla.broker.request.services import Services
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.stored_topics import stored_topic_id
from ottla.controller.registration import stored_cluster_id
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.leader.partition import Partition
from ottla.replication.remote.aux_state import AuxStates
from ottla.replication.remote.byte_quota import COPY, ByteQuota
from ottla.replication.remote.copies import CopyServices
from ottla.replication.remote.remote_log_manager import RemoteLogManager
from ottla.replication.remote.settings import RemoteSettings
from ottla.storage.disk.background import Background
from ottla.storage.disk.clock import Clock
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.partition_metadata import stray_topic_ids
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.remote.ports import RemoteLogMetadata


def make_tasks(
    config: BrokerConfig,
    broker_id: int,
    clock: Clock,
    storage: RemoteStorage,
    metadata: RemoteLogMetadata,
    background: Background,
    random: Random,
) -> tuple[RemoteLogManager, AuxStates]:
    """Returns the manager of the tasks, which the caller stops, and what begins logs of followers behind remote records."""
    manager = RemoteLogManager(
        CopyServices(
            storage.store,
            metadata,
            RemoteSettings(config, broker_id, random.random),
            background,
            clock,
            random.randbytes,
            ByteQuota(config, COPY, clock),
            storage.counters,
            storage.forget,
            storage.budget,
        )
    )
    return manager, AuxStates(storage.store, metadata, background, storage.counters, manager.on_config_change, storage.budget)


def listen_to(replicas: ReplicaManager, manager: RemoteLogManager) -> None:
    """Has all partitions that get a role from now on copied, expired and followed.

    Copies go at once only if a controller reported the deletion of their topic. All others are left to `Leftovers`.
    """

    def on_change(partition: Partition) -> None:
        manager.on_leadership_change(partition)
        if (topic := partition.topic_partition.topic) not in replicas.partitions:
            manager.counters.topics.pop(topic, None)

    replicas.leadership_listeners.append(on_change)
    replicas.config_listeners.append(manager.on_config_change)
    replicas.reported_deletion_listeners.append(manager.on_partitions_deleted)


def leftovers(services: Services, storage: RemoteStorage, manager: RemoteLogManager, filesystem: FileSystem, interval_ms: int) -> Leftovers:
    """Returns the search for what deleted topics have left in the store. The first log directory keeps what it has found."""
    store, logs = services.administration.store, services.data.log_manager
    return Leftovers(
        storage.store,
        manager,
        services.cluster_id,
        partial(stored_topic_id, store),
        partial(stored_cluster_id, store),
        partial(local_topic_ids, logs, filesystem, storage.in_thread),
        lambda: services.cluster.controller.is_active,
        GoneTopics(filesystem, next(iter(logs.directories.all)), services.cluster_id),
        storage.in_thread,
        services.clock,
        interval_ms / 1000,
    )


async def local_topic_ids(
    logs: LogManager, filesystem: FileSystem, in_thread: Callable[[Callable[[], set[bytes]]], Awaitable[set[bytes]]]
) -> set[bytes]:
    """Returns the topics of which the log directories have records, also of replicas that were set aside. Raises OSError."""
    served = {each.topic_id for each in logs.current_logs()}
    return served | await in_thread(partial(stray_topic_ids, filesystem, [each.path for each in logs.directories.live]))
