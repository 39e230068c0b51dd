"""Makes the coordinators of a broker (groups, transactions, state of share groups) and what asks them. `server.py` calls it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.handlers.transactions.marker_writer import MarkerWriter
from ottla.broker.request.services import AdministrationServices, ClusterServices, CoordinatorServices, DataServices
from ottla.config.broker import BrokerConfig
from ottla.config.keys.network import REQUEST_TIMEOUT_MS
from ottla.controller.admin.stored_topics import stored_count, stored_partitions
from ottla.controller.registration import in_session
from ottla.controller.store.metadata_store import MetadataStore
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.partitions.stored_partitions import StoredPartitions
from ottla.coordination.shares.leader import ShareLeader
from ottla.coordination.shares.settings import ShareSettings
from ottla.coordination.shares.state.coordinator import ShareCoordinator
from ottla.coordination.shares.state_of_groups import StateOfGroups
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.protocol.features import GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION
from ottla.storage.disk.clock import Clock

if TYPE_CHECKING:
    from ottla.broker.cluster.cluster_wiring import ClusterWiring
    from ottla.replication.waiting.timing_wheel import TimingWheel


def make_coordinators(
    config: BrokerConfig,
    clock: Clock,
    wheel: TimingWheel,
    workers: Executor,
    random_bytes: Callable[[int], bytes],
    data: DataServices,
    administration: AdministrationServices,
    cluster: ClusterServices,
    wiring: ClusterWiring,
    while_loading: Callable[[], AbstractContextManager[None]],
) -> CoordinatorServices:
    """Makes the coordinators, the verifier of transactions, and the leader of share partitions. From now on each change of leadership
    reaches them. `while_loading` makes the context of loads.
    """
    level, group_configs, replicas = cluster.features.level, administration.group_configs.of, data.replica_manager
    common = (config, clock, wheel, replicas, data.produce_purgatory, workers)

    def on_offsets_committed(producer_id: int, index: int, is_commit: bool) -> None:
        groups.on_transaction_completed(producer_id, index, is_commit)  # groups need the verifier, and so the transactions, which need this

    transactions = TransactionCoordinator(
        *common,
        wiring.write_markers(),
        partial(stored_partitions, administration.store),
        cluster.producer_ids.next_now,
        partial(level, TRANSACTION_VERSION),
        while_loading=while_loading,
        markers_here=(replicas.broker_id, MarkerWriter(data, clock, workers, config[REQUEST_TIMEOUT_MS], on_offsets_committed).write),
    )
    verifier = wiring.transaction_verifier(transactions)
    shares = ShareCoordinator(*common, while_loading=while_loading)
    access = wiring.share_state(wheel, shares, administration.auto_topics)
    groups = GroupCoordinator(
        *common,
        verifier,
        StateOfGroups(access),
        lambda: UUID(bytes=random_bytes(16), version=4),
        while_loading=while_loading,
        group_configs=group_configs,
        level=partial(level, GROUP_VERSION),
        share_level=partial(level, SHARE_VERSION),
    )
    cluster.features.on_change(groups.on_levels_changed)
    share_leader = ShareLeader(config, ShareSettings(config, group_configs), access, wheel, clock, wiring.share_positions(access))
    replicas.leadership_listeners += [each.on_leadership_change for each in (groups, transactions, shares, share_leader.led)]
    replicas.deletion_listeners += [groups.on_partitions_deleted, shares.on_partitions_deleted]
    return CoordinatorServices(
        groups=groups, shares=shares, transactions=transactions, share_leader=share_leader, transaction_verifier=verifier
    )


async def start_coordinators(held: AsyncExitStack, coordinators: CoordinatorServices, store: MetadataStore) -> None:
    """Reads how many partitions their topics have, and starts them. `held` gets what stops them. Raises StoreError."""
    for owned in (coordinators.groups.groups, coordinators.transactions.transactions, coordinators.shares.states):
        stored = StoredPartitions(owned, partial(stored_count, store))
        held.push_async_callback(stored.close)
        await in_session(store, stored.read)
    for coordinator in (coordinators.groups, coordinators.transactions, coordinators.shares):
        coordinator.start()
        held.push_async_callback(coordinator.stop)
    coordinators.share_leader.start()
    held.callback(coordinators.share_leader.stop)
