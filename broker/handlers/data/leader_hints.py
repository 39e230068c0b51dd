"""Finds the current leader for tagged fields that spare a client a Metadata request after NOT_LEADER_OR_FOLLOWER (KIP-951)."""

from ottla.protocol.cursors.response_writer import NodeEndpoints
from ottla.replication.control.replica_manager import ReplicaManager


def current_leader(replicas: ReplicaManager, topic: str, partition: int) -> tuple[int, int]:
    """Leader id and leader epoch from the replica here, otherwise from the cluster's metadata; (-1, -1) when neither knows them."""
    hosted = replicas.partition(topic, partition)
    if hosted is not None:
        return hosted.leader_id, hosted.leader_epoch
    return replicas.cluster.leader_of(topic, partition)


def leader_nodes(replicas: ReplicaManager, leader_ids: set[int], listener: str) -> NodeEndpoints:
    """The endpoint on `listener` of each leader that is alive and has that listener."""
    found = []
    for leader_id in sorted(leader_ids):
        broker = replicas.cluster.brokers.get(leader_id)
        endpoint = broker.endpoints.get(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append((leader_id, endpoint.host, endpoint.port, broker.rack))
    return found
