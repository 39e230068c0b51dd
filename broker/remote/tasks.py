"""Begins the tasks of tiered storage on a broker: copies, removals, and the remote part of replication (`replication/remote`)."""

from __future__ import annotations

from random import Random

from ottla.broker.remote.remote_storage import RemoteStorage
from ottla.broker.request.services import Services
from ottla.replication.remote.aux_state import AuxStates
from ottla.replication.remote.byte_quota import COPY, ByteQuota
from ottla.replication.remote.copies import CopyServices
from ottla.replication.remote.counters import RemoteCounters
from ottla.replication.remote.remote_log_manager import RemoteLogManager
from ottla.replication.remote.settings import RemoteSettings
from ottla.storage.disk.background import Background
from ottla.storage.remote.ports import RemoteLogMetadata


def begin_tasks(
    services: Services, storage: RemoteStorage, metadata: RemoteLogMetadata, background: Background, random: Random
) -> RemoteLogManager:
    """Has all partitions that get a role from now on copied, expired and followed. The caller stops the manager."""
    config, clock, replicas = services.config, services.clock, services.data.replica_manager
    counters = RemoteCounters()
    manager = RemoteLogManager(
        CopyServices(
            storage.store,
            metadata,
            RemoteSettings(config, services.broker_id, random.random),
            background,
            clock,
            random.randbytes,
            ByteQuota(config, COPY, clock),
            counters,
        )
    )
    replicas.leadership_listeners.append(manager.on_leadership_change)
    replicas.config_listeners.append(manager.on_config_change)
    if services.cluster.fetcher_pool is not None:
        services.cluster.fetcher_pool.use_remote_storage(AuxStates(storage.store, metadata, background, counters, manager.on_config_change))
    return manager
