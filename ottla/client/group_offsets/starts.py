"""Reads, moves and deletes the start offsets of a share group through its coordinator (KIP-932).

Records before the start of a partition are complete. Records behind it may be complete, too, so only the broker knows the lag.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import Cluster, ClusterChange
from ottla.client.errors import ClientError, Refused, check
from ottla.client.group_offsets.committed import raise_all
from ottla.client.offsets import by_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.topic_partition import TopicPartition


class Start(NamedTuple):
    """The start offset of a partition, None as long as no member has fetched it. The lag of an old broker is None."""

    offset: int | None
    lag: int | None

    def behind(self, end: int | None) -> int | None:
        """The number of records up to the end that are not complete."""
        return self.lag


def share_starts(cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Start]:
    """The partitions that a share group has, of these or of all, with their start offsets. Raises Refused."""
    wanted = None if partitions is None else set(partitions)

    def attempt() -> dict[TopicPartition, Start]:
        request = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)])
        answer = cluster.ask(lambda: cluster.connection(cluster.coordinator(group)), request, DescribeShareGroupOffsetsResponse)
        (described,) = answer.groups
        check(f"group {group}", described.error_code, described.error_message)
        found = {}
        for topic in described.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.topic_name, each.partition_index)
                if wanted is not None and where not in wanted:
                    continue
                check(f"the offset of group {group} for {where}", each.error_code, each.error_message)
                found[where] = Start(None if each.start_offset < 0 else each.start_offset, None if each.lag < 0 else each.lag)
        return found

    return cluster.until_done(attempt)


def move_starts(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Let a share group without members begin at these offsets. Raises Refused, SomeRefused for single partitions."""
    if not offsets:
        return

    def attempt() -> None:
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offsets[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ]
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
        answer = cluster.ask(lambda: cluster.connection(cluster.coordinator(group)), request, AlterShareGroupOffsetsResponse)
        check(f"group {group}", answer.error_code, answer.error_message)
        errors = {}
        for topic in answer.responses:
            for each in topic.partitions:
                if each.error_code:
                    where = f"{topic.topic_name}-{each.partition_index}"
                    errors[where] = Refused(f"the offset of group {group} for {where}", each.error_code, each.error_message)
        raise_all(errors, len(offsets))

    cluster.until_done(attempt)


def delete_starts(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Refused | None]:
    """Delete the offsets of whole topics; the outcome of each partition.

    Raises ClientError if a partition of such a topic is missing, which no request can keep; Refused when the group refuses the request.
    """
    wanted = list(partitions)
    topics = dict.fromkeys(where.topic for where in wanted)
    for where in share_starts(cluster, group).keys() - set(wanted):
        if where.topic in topics:
            raise ClientError(f"the offsets of share group {group} are deleted by topic; {where} cannot be kept, so name all partitions")
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    )
    deletion = ClusterChange(cluster, request, DeleteShareGroupOffsetsResponse, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def attempt() -> dict[TopicPartition, Refused | None]:
        answer = deletion.ask(lambda: cluster.connection(cluster.coordinator(group)))
        check(f"group {group}", answer.error_code, answer.error_message)
        outcomes: dict[str, Refused | None] = {}
        for each in answer.responses:
            what = f"the offsets of group {group} for {each.topic_name}"
            error = deletion.explained(Refused(what, each.error_code, each.error_message)) if each.error_code else None
            outcomes[each.topic_name] = error
        return {where: outcomes[where.topic] for where in wanted if where.topic in outcomes}

    return cluster.until_done(attempt)
