"""Looks up the start and end offsets of partitions, and offsets for timestamps, by ListOffsets to the leaders."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster, may_pass
from ottla.client.errors import ClientError, Refused, check
from ottla.client.reachable import Errors, of_leaders
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.topic_partition import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
"""Earlier records are in the remote store only (KIP-405)."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

LEADER_SECONDS: Final = 3.0
"""Time for the leader of a partition that can be left out, seconds; an election takes less."""


class FoundOffset(NamedTuple):
    """An offset, and the timestamp of its record for a lookup by time. Offset -1: no record is at or after that time."""

    offset: int
    timestamp: int


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, FoundOffset]:
    """The offset for a timestamp, or for one of the constants above, of each partition. Raises ClientError."""
    found: dict[TopicPartition, FoundOffset] = {}

    def attempt() -> None:
        missing = [partition for partition in wanted if partition not in found]
        for leader, partitions in cluster.by_leader(missing).items():
            answer = cluster.ask_broker(leader, _request(partitions, wanted, isolation), ListOffsetsResponse)
            for topic in answer.topics:
                for partition in topic.partitions:
                    name = TopicPartition(topic.name, partition.partition_index)
                    check(str(name), partition.error_code)
                    found[name] = FoundOffset(partition.offset, partition.timestamp)

    cluster.until_done(attempt)
    return {partition: found[partition] for partition in wanted}


def reachable_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED, seconds: float = LEADER_SECONDS
) -> tuple[dict[TopicPartition, int], Errors]:
    """The offsets of those partitions whose leaders answer within these seconds, and the error of each other one.

    Raises ClientError for what waiting does not change.
    """
    seconds = min(seconds, cluster.timeout_seconds)

    def ask(own: Cluster, leader: int, names: list[TopicPartition]) -> dict[TopicPartition, int | ClientError]:
        answer = own.ask_briefly(leader, _request(names, wanted, isolation), ListOffsetsResponse, seconds)
        found: dict[TopicPartition, int | ClientError] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                name = TopicPartition(topic.name, each.partition_index)
                found[name] = Refused(str(name), each.error_code) if each.error_code else each.offset
        return found

    found, errors = of_leaders(cluster, wanted, ask, seconds=min(seconds, cluster.patience_seconds))
    for error in errors.values():
        if not may_pass(error):
            raise error
    return found, errors


def _request(partitions: Iterable[TopicPartition], wanted: Mapping[TopicPartition, int], isolation: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=wanted[TopicPartition(topic, number)]) for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def end_offsets(cluster: Cluster, partitions: Iterable[TopicPartition], *, isolation: int = READ_UNCOMMITTED) -> dict[TopicPartition, int]:
    """The offset after the last record that a consumer may read, of each partition."""
    return {name: found.offset for name, found in list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation=isolation).items()}


def start_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset of the first record of each partition."""
    return {name: found.offset for name, found in list_offsets(cluster, dict.fromkeys(partitions, EARLIEST)).items()}


def offsets_at(cluster: Cluster, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
    """The offset of the first record at that time or later, of each partition; the end if there is none.

    The ends are asked for first. A record that is written between the two requests is behind such an end: it is of that time or later.
    """
    names = list(partitions)
    ends = end_offsets(cluster, names)
    found = list_offsets(cluster, dict.fromkeys(names, timestamp_ms))
    return {name: ends[name] if where.offset < 0 else where.offset for name, where in found.items()}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partition numbers by topic."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found
