"""Reads the stored states of the records of a share group from `__share_group_state`, as a new leader of their partitions would get them.

Locks are not stored: a record that a member has now is in the state that it had before. Used by `ottla groups` and the console.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.fetcher import Fetcher
from ottla.client.group_admin import SHARE, describe_group
from ottla.client.group_offsets.starts import share_starts
from ottla.client.offsets import end_offsets, start_offsets
from ottla.coordination.internal_topics import SHARE_STATE_TOPIC
from ottla.coordination.partitions.owned import absolute_hash
from ottla.coordination.shares.record_states import RecordState
from ottla.coordination.shares.state.loading import ShareStateLoader
from ottla.coordination.shares.state.stored_state import SharePartitionKey, StoredState
from ottla.protocol.topic_partition import TopicPartition

MOST_RECORDS: Final = 200_000
"""Records of `__share_group_state` that are read for one group: some seconds. The coordinators delete old ones every few minutes."""
POLL_SECONDS: Final = 0.5


class StoredRecords(NamedTuple):
    """Records from `first` to `last` that have the same state: available again, acknowledged, or archived."""

    first: int
    last: int
    state: str
    deliveries: int


class StoredPartition(NamedTuple):
    """The records of a partition that are in flight: from the start of the group up to the last one whose state is stored."""

    start: int | None
    in_flight: int
    records: list[StoredRecords]


def stored_records(cluster: Cluster, group: str) -> dict[TopicPartition, StoredPartition]:
    """The records in flight of a share group, by partition. Raises ClientError."""
    if describe_group(cluster, group).type != SHARE:
        raise ClientError(f"group {group} is no share group")
    partitions = sorted(share_starts(cluster, group))
    ids = {topic.name: topic.topic_id for topic in cluster.refresh({each.topic for each in partitions}).topics}
    keys = {each: SharePartitionKey(group, ids[each.topic], each.partition) for each in partitions if each.topic in ids}
    states = _read(cluster, list(keys.values())) if keys else {}
    return {where: _stored(states.get(str(key))) for where, key in keys.items()}


def _read(cluster: Cluster, keys: list[SharePartitionKey]) -> dict[str, StoredState]:
    """The states in the partitions of the topic that have those of the keys."""
    count = len(cluster.partitions(SHARE_STATE_TOPIC))
    wanted = sorted({TopicPartition(SHARE_STATE_TOPIC, absolute_hash(str(key)) % count) for key in keys})
    starts, ends = start_offsets(cluster, wanted), end_offsets(cluster, wanted)
    if (total := sum(ends[each] - starts[each] for each in wanted)) > MOST_RECORDS:
        raise ClientError(f"{SHARE_STATE_TOPIC} has {total} records to be read for this group; look again when old ones are deleted")
    loader = ShareStateLoader(SHARE_STATE_TOPIC)
    with Fetcher(cluster, {each: start for each, start in starts.items() if start < ends[each]}) as fetcher:
        while fetcher.positions:
            for batch in fetcher.poll(POLL_SECONDS):
                for record in batch.records:
                    loader.take(record.key, record.value, record.offset, record.timestamp)
                if batch.next_offset >= ends[batch.partition]:
                    fetcher.positions.pop(batch.partition, None)
    found: dict[str, StoredState] = {}
    for _ in loader.states(0, found):
        pass
    return found


def _stored(state: StoredState | None) -> StoredPartition:
    if state is None or state.start_offset < 0:
        return StoredPartition(None, 0, [])
    records = [
        StoredRecords(first, last, RecordState(number).name.lower() if number in set(RecordState) else str(number), count)
        for first, last, number, count in state.batches
    ]
    return StoredPartition(state.start_offset, records[-1].last + 1 - state.start_offset if records else 0, records)
