"""Which replica a consumer should read from (KIP-392, `replica.selector.class`).

The leader asks when a consumer says where it is (its `client.rack`), and answers with the replica instead of with records; the consumer
then reads from there until that replica refuses it or its metadata grow old. Only members of the ISR that hold the asked offset are chosen
from: a replica that lags would send the consumer back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from config.errors import ConfigError

if TYPE_CHECKING:
    from replication.leader.partition import Partition
    from replication.ports.cluster import MetadataCache

NO_PREFERENCE = -1
"""Read from the leader."""


class ReplicaView(NamedTuple):
    """A live replica that has what the consumer asks for."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    ms_since_caught_up: int


ReplicaSelector: TypeAlias = Callable[[str, ReplicaView, Sequence[ReplicaView]], ReplicaView]
"""(the consumer's rack, the leader, the followers that will do) -> where to read."""


def select_leader(rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> ReplicaView:
    """The leader for everybody."""
    return leader


def select_by_rack(rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> ReplicaView:
    """A replica in the consumer's rack: the leader if it stands there, else the one that is furthest, else the leader all the same."""
    if not rack_id or leader.rack == rack_id:
        return leader
    near = [follower for follower in followers if follower.rack == rack_id]
    return max(near, key=lambda each: (each.log_end_offset, -each.ms_since_caught_up, each.broker_id), default=leader)


SELECTORS: dict[str, ReplicaSelector] = {
    "org.apache.kafka.common.replica.LeaderSelector": select_leader,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": select_by_rack,
}
"""The classes that Apache Kafka brings with it. There is no Java here, so there can be no others."""


def selector_of(class_name: str | None) -> ReplicaSelector | None:
    """The selector for `replica.selector.class`. Raises ConfigError for a class that is not one of Apache Kafka's own."""
    if class_name is None:
        return None
    try:
        return SELECTORS[class_name]
    except KeyError:
        raise ConfigError(f"replica.selector.class: there is no {class_name} here, only {' and '.join(SELECTORS)}") from None


def preferred_read_replica(
    partition: Partition, cluster: MetadataCache, select: ReplicaSelector, rack_id: str, listener: str, offset: int, now_ms: int
) -> int:
    """Where a consumer of `listener` should read `offset` of a partition that is led here; NO_PREFERENCE for this leader itself."""

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
