"""Selects the replica that a consumer should read (KIP-392, `replica.selector.class`).

The leader calls it when a consumer sends its location (`client.rack`), and answers with the selected replica instead of records. The
consumer reads from that replica until the replica refuses it or the consumer's metadata expires. Only ISR members that have the requested
offset are candidates: a replica that lags would send the consumer back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.config.errors import ConfigError

if TYPE_CHECKING:
    from ottla.replication.leader.partition import Partition
    from ottla.replication.ports.cluster import MetadataCache

NO_PREFERENCE = -1
"""Stands for the leader."""


class ReplicaView(NamedTuple):
    """A live replica that has the requested records."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    ms_since_caught_up: int


ReplicaSelector: TypeAlias = Callable[[str, ReplicaView, Sequence[ReplicaView]], ReplicaView]
"""(the consumer's rack, the leader, the candidates among the followers) -> the selected replica."""


def select_leader(rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> ReplicaView:
    """Select the leader for every consumer."""
    return leader


def select_by_rack(rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> ReplicaView:
    """Select a replica in the consumer's rack: the leader, else the most advanced follower; without one there, the leader."""
    if not rack_id or leader.rack == rack_id:
        return leader
    near = [follower for follower in followers if follower.rack == rack_id]
    return max(near, key=lambda each: (each.log_end_offset, -each.ms_since_caught_up, each.broker_id), default=leader)


SELECTORS: dict[str, ReplicaSelector] = {
    "org.apache.kafka.common.replica.LeaderSelector": select_leader,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": select_by_rack,
}
"""The classes that Apache Kafka includes. Others cannot exist here, because there is no Java."""


def selector_of(class_name: str | None) -> ReplicaSelector | None:
    """The selector for `replica.selector.class`. Raises ConfigError for a class that Apache Kafka does not include."""
    if class_name is None:
        return None
    try:
        return SELECTORS[class_name]
    except KeyError:
        raise ConfigError(f"replica.selector.class: {class_name} is not supported, only {' and '.join(SELECTORS)}") from None


def preferred_read_replica(
    partition: Partition, cluster: MetadataCache, select: ReplicaSelector, rack_id: str, listener: str, offset: int, now_ms: int
) -> int:
    """The broker from which a consumer of `listener` should read `offset`; NO_PREFERENCE for the leader itself."""

    def view(broker_id: int, log_end_offset: int, ms_since_caught_up: int) -> ReplicaView:
        broker = cluster.brokers.get(broker_id)
        return ReplicaView(broker_id, None if broker is None else broker.rack, log_end_offset, ms_since_caught_up)

    followers = [
        view(broker_id, progress.log_end_offset, now_ms - progress.last_caught_up_ms)
        for broker_id, progress in partition.followers.items()
        if progress.log_start_offset <= offset <= progress.log_end_offset
        and broker_id in partition.isr
        and cluster.endpoint(broker_id, listener) is not None
    ]
    if not followers:
        return NO_PREFERENCE
    leader = view(partition.broker_id, partition.log.log_end_offset, 0)
    selected = select(rack_id, leader, followers)
    return NO_PREFERENCE if selected is leader else selected.broker_id
