"""Reads, commits and deletes a group's committed offsets through its coordinator."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import Cluster, ClusterChange, may_pass
from ottla.client.errors import ClientError, Refused, SomeRefused, check
from ottla.client.offsets import by_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ottla.protocol.topic_partition import TopicPartition


class Committed(NamedTuple):
    """The committed offset of a partition."""

    offset: int
    metadata: str

    def behind(self, end: int | None) -> int | None:
        """The lag: the number of offsets up to the end of the partition, None if that is unknown."""
        return None if end is None else end - self.offset


class Membership(NamedTuple):
    """The membership of a commit. The default is a client outside the group, which a group with members refuses."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


OUTSIDE = Membership()


class UnstableOffsets(ClientError):
    """A transaction that is still open, or has no markers yet, has offsets of the group."""


def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
) -> dict[TopicPartition, Committed]:
    """The committed offsets of these partitions, or of all; partitions without one are omitted. Raises Refused.

    With `require_stable` it raises UnstableOffsets rather than return an offset that an open transaction may replace (KIP-447).
    """
    wanted = None if partitions is None else list(partitions)

    def attempt() -> dict[TopicPartition, Committed]:
        topics = None
        if wanted is not None:
            topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(wanted).items()]
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)
        answer = cluster.ask(lambda: cluster.connection(cluster.coordinator(group)), request, OffsetFetchResponse)
        check(f"group {group}", answer.error_code)
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise UnstableOffsets(f"a transaction has an offset of group {group} for {name} that is not committed yet")
                check(f"the offset of group {group} for {name}", partition.error_code)
                if partition.committed_offset >= 0:
                    found[name] = Committed(partition.committed_offset, partition.metadata or "")
        return found

    return cluster.until_done(attempt)


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], membership: Membership = OUTSIDE) -> None:
    """Commit offsets. Raises Refused when the membership is no longer valid, SomeRefused for single partitions."""
    if not offsets:
        return

    def attempt() -> None:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offsets[TopicPartition(topic, number)], committed_metadata=""
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(offsets).items()
            ],
        )
        answer = cluster.ask(lambda: cluster.connection(cluster.coordinator(group)), request, OffsetCommitResponse)
        errors = {
            f"{topic.name}-{partition.partition_index}": Refused(
                f"the offset of group {group} for {topic.name}-{partition.partition_index}", partition.error_code
            )
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code
        }
        raise_all(errors, len(offsets))

    cluster.until_done(attempt)


def raise_all(errors: Mapping[str, Refused], asked: int) -> None:
    """Raises a single error if all `asked` offsets have the same one, or if a repetition may help. Otherwise SomeRefused names each."""
    first = next(iter(errors.values()), None)
    if first is not None and len({error.code for error in errors.values()}) == 1 and (len(errors) == asked or may_pass(first)):
        raise first
    if errors:
        raise SomeRefused(errors)


def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Refused | None]:
    """Delete offsets; the outcome of each. Raises Refused when the group refuses the request."""
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers])
            for topic, numbers in by_topic(partitions).items()
        ],
    )
    # A group without members ends with its last offset.
    deletion = ClusterChange(cluster, request, OffsetDeleteResponse, ErrorCode.GROUP_ID_NOT_FOUND)

    def attempt() -> dict[TopicPartition, Refused | None]:
        answer = deletion.ask(lambda: cluster.connection(cluster.coordinator(group)))
        if answer.error_code:
            raise deletion.explained(Refused(f"group {group}", answer.error_code))
        found: dict[TopicPartition, Refused | None] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                failed = partition.error_code != ErrorCode.NONE
                found[name] = Refused(f"the offset of group {group} for {name}", partition.error_code) if failed else None
        return found

    return cluster.until_done(attempt)
