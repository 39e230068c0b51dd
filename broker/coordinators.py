"""Makes the coordinators of a broker (groups, transactions, state of share groups) and what asks them. `server.py` starts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.handlers.transactions.marker_writer import MarkerWriter
from ottla.broker.request.services import CoordinatorServices, Services
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.shares.leader import ShareLeader
from ottla.coordination.shares.settings import ShareSettings
from ottla.coordination.shares.state.coordinator import ShareCoordinator
from ottla.coordination.shares.state_of_groups import StateOfGroups
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.protocol.features import GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION

if TYPE_CHECKING:
    from ottla.broker.cluster.cluster_wiring import ClusterWiring
    from ottla.replication.waiting.timing_wheel import TimingWheel


def make_coordinators(
    services: Services,
    cluster: ClusterWiring,
    wheel: TimingWheel,
    random_bytes: Callable[[int], bytes],
    partitions_of: Callable[[str], Awaitable[Collection[int]]],
    while_loading: Callable[[], AbstractContextManager[None]],
) -> CoordinatorServices:
    """Makes the coordinators, the verifier of transactions, and the leader of share partitions. From now on each change of leadership
    reaches them.

    `services` has all other groups. `while_loading` makes the context of loads.
    """
    data, config, clock = services.data, services.config, services.clock
    level = services.cluster.features.level
    transactions = TransactionCoordinator(
        config,
        clock,
        wheel,
        data.replica_manager,
        data.produce_purgatory,
        services.workers,
        cluster.write_markers(),
        partitions_of,
        services.cluster.producer_ids.next_now,
        partial(level, TRANSACTION_VERSION),
        while_loading=while_loading,
        markers_here=(services.broker_id, MarkerWriter(services).write),
    )
    verifier = cluster.transaction_verifier(transactions)
    shares = ShareCoordinator(
        config, clock, wheel, data.replica_manager, data.produce_purgatory, services.workers, while_loading=while_loading
    )
    access = cluster.share_state(wheel, shares)
    groups = GroupCoordinator(
        config,
        clock,
        wheel,
        data.replica_manager,
        data.produce_purgatory,
        services.workers,
        verifier,
        StateOfGroups(access),
        lambda: UUID(bytes=random_bytes(16), version=4),
        while_loading=while_loading,
        group_configs=services.administration.group_configs.of,
        level=partial(level, GROUP_VERSION),
        share_level=partial(level, SHARE_VERSION),
    )
    services.cluster.features.on_change(groups.on_levels_changed)
    share_settings = ShareSettings(config, services.administration.group_configs.of)
    share_leader = ShareLeader(config, share_settings, access, wheel, clock, cluster.share_positions(access))
    data.replica_manager.leadership_listeners += [each.on_leadership_change for each in (groups, transactions, shares, share_leader.led)]
    return CoordinatorServices(
        groups=groups, shares=shares, transactions=transactions, share_leader=share_leader, transaction_verifier=verifier
    )
