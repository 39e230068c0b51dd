"""Tells what the partitions of a topic with tiered storage have in the remote store, and where their records on local disks begin.

Only the metadata of the copies tell their sizes: no request of Kafka asks a broker for them. The metadata partitions that have entries of
the topic are read from their beginning, so the page asks for this part after it has shown the others.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.cli.remote.stored_copies import known_copies
from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.offsets import EARLIEST_LOCAL, reachable_offsets
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.remote.entries import TopicIdPartition

MAX_SECONDS: Final = 20.0
"""Time for reading the metadata of the copies, seconds."""


def topic_remote(cluster: Cluster, name: str) -> dict[str, Any]:
    """The copies of each partition that consumers read: their number and bytes, and the local log start offset.

    A partition whose leader does not answer has no such offset. Raises ClientError.
    """
    found = cluster.topic(name)
    indexes = sorted(each.partition_index for each in found.partitions)
    led = [TopicPartition(name, each.partition_index) for each in found.partitions if each.leader_id != NO_LEADER]
    local_starts, _ = reachable_offsets(cluster, dict.fromkeys(led, EARLIEST_LOCAL))
    copies = known_copies(cluster, [TopicIdPartition(found.topic_id, name, index) for index in indexes], seconds=MAX_SECONDS)
    sizes: dict[int, list[int]] = {index: [] for index in indexes}
    for entry, is_read in copies:
        if is_read:
            sizes[entry.id.partition.partition].append(entry.size)
    return {
        "partitions": [
            {
                "partition": index,
                "local_start": local_starts.get(TopicPartition(name, index)),
                "segments": len(sizes[index]),
                "bytes": sum(sizes[index]),
            }
            for index in indexes
        ]
    }
