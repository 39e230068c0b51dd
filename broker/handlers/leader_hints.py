"""Who leads instead: the tagged fields that spare a client a Metadata request after NOT_LEADER_OR_FOLLOWER (KIP-951)."""

from protocol.errors import ErrorCode
from replication.cluster import EndPoint, MetadataCache

ASKS_FOR_A_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def current_leader(
    cluster: MetadataCache, code: int, topic: str, partition: int, listener: str
) -> tuple[int, int, EndPoint | None, str | None]:
    """(leader id, its epoch, its end point on `listener`, its rack) for an error that a new leader cures; else (-1, -1, None, None)."""
    if code not in ASKS_FOR_A_LEADER:
        return -1, -1, None, None
    leader_id, leader_epoch = cluster.leader_of(topic, partition)
    broker = cluster.brokers.get(leader_id)
    if broker is None:
        return leader_id, leader_epoch, None, None
    return leader_id, leader_epoch, broker.endpoints.get(listener), broker.rack
