"""Finds the offsets of logs that are neither on their leaders nor in finished copies of the remote store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.remote.stored_copies import known_copies
from ottla.client.offsets import EARLIEST, EARLIEST_LOCAL, reachable_offsets
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.remote.entries import SegmentEntry, SegmentState, TopicIdPartition
from ottla.storage.remote.lineage import Gaps

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster


def partitions_of(cluster: Cluster, topics: Iterable[str]) -> list[TopicIdPartition]:
    """The partitions of those of the topics that exist. Raises ClientError."""
    from ottla.client.cluster import UnknownTopic

    found: list[TopicIdPartition] = []
    for name in topics:
        try:
            topic = cluster.topic(name)
        except UnknownTopic:
            continue
        found += [TopicIdPartition(topic.topic_id, name, each.partition_index) for each in topic.partitions]
    return found


def missing_ranges(
    cluster: Cluster, partitions: Iterable[TopicIdPartition], copies: Iterable[SegmentEntry]
) -> dict[TopicIdPartition, list[tuple[int, int]]]:
    """The (first, last) offsets of each gap, of the partitions that have some and whose leaders answer. Raises ClientError.

    Brokers copy and remove segments meanwhile. So the copies are read again, after the local log start offsets, before a gap counts.
    """
    wanted = {TopicPartition(*each[1:]): each for each in partitions}
    local, _ = reachable_offsets(cluster, dict.fromkeys(wanted, EARLIEST_LOCAL))

    def gaps(copies: Iterable[SegmentEntry]) -> dict[TopicIdPartition, list[tuple[int, int]]]:
        starts, _ = reachable_offsets(cluster, dict.fromkeys(local, EARLIEST))
        found = {wanted[each]: Gaps(start, local[each]) for each, start in starts.items()}
        for entry in sorted(copies, key=lambda each: each.start_offset):
            if entry.state == SegmentState.COPY_SEGMENT_FINISHED and entry.id.partition in found:
                found[entry.id.partition].on_copy(entry.start_offset, entry.end_offset)
        return {partition: ranges for partition, each in found.items() if (ranges := each.all())}

    return gaps(entry for entry, _ in known_copies(cluster)) if gaps(copies) else {}
