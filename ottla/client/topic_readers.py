"""Finds the groups that read a topic: they have offsets for it, or members that have its partitions.

Asks all coordinators at the same time, and each for many groups at once: one DescribeGroups, and an OffsetFetch for each group, before it
waits for the answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.client.assignor import PROTOCOL_TYPE, decode_assignment
from ottla.client.cluster import Cluster, may_pass
from ottla.client.connection import Connection
from ottla.client.errors import ClientError, ConnectionLost, Refused, check
from ottla.client.group_admin import ListedGroup, describe_group
from ottla.client.group_offsets.committed import Committed
from ottla.client.group_offsets.kinds import Position, requests_of
from ottla.client.reachable import at_once
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition

GROUPS_IN_FLIGHT: Final = 50
"""Groups whose offsets are requested from a coordinator before the first answer."""
PARTITIONS_IN_FLIGHT: Final = 20_000
"""Partitions in requests without an answer; more could fill the buffers of both ends, which then wait for each other."""
_CLASSIC: Final = ("", "Classic")
"""Types of groups that DescribeGroups knows; a broker without types gives none."""
_ASKED_ALONE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors after which a group is asked alone, at its current coordinator."""


class Reader(NamedTuple):
    """A group that reads a topic."""

    group: str
    state: str
    members: int
    """Members that have partitions of the topic."""
    offsets: dict[int, Position]
    """The offsets by partition."""


class Readers(NamedTuple):
    """The groups that read a topic, by name."""

    found: list[Reader]
    refused: list[str]
    """Groups that this client may not describe."""
    lost: dict[int, ClientError]
    """The error of each coordinator that did not answer for all of its groups."""


def readers_of(cluster: Cluster, topic: str, groups: Sequence[ListedGroup]) -> Readers:
    """The groups among these that read the topic. Coordinators that do not answer take the timeout once.

    Raises ClientError for what waiting does not change, also if there is no such topic.
    """
    partitions = cluster.partitions(topic)
    by_coordinator: dict[int, list[ListedGroup]] = {}
    for each in groups:
        by_coordinator.setdefault(each.coordinator, []).append(each)
    found: dict[str, Reader | None] = {}

    def ask(own: Cluster, coordinator: int) -> None:
        for some in _asked_groups(own, coordinator, topic, partitions, by_coordinator[coordinator]):
            found.update(some)  # one by one: a coordinator that is lost later has answered for these

    _, errors = at_once(cluster, by_coordinator, ask)
    for error in errors.values():
        if not may_pass(error):
            raise error
    readers = sorted(each for each in found.values() if each is not None and (each.members or each.offsets))
    return Readers(readers, sorted(group for group, each in found.items() if each is None), errors)


def _asked_groups(
    cluster: Cluster, coordinator: int, topic: str, partitions: list[int], groups: Sequence[ListedGroup]
) -> Iterator[Mapping[str, Reader | None]]:
    """The groups of one coordinator, some at a time. Raises ClientError."""
    most = max(1, min(GROUPS_IN_FLIGHT, PARTITIONS_IN_FLIGHT // max(1, len(partitions))))
    alone = [each.group for each in groups if each.type not in _CLASSIC]
    names = [each.group for each in groups if each.type in _CLASSIC]
    for begin in range(0, len(names), most):
        some = names[begin : begin + most]
        found = cluster.until_done(partial(_asked_together, cluster, coordinator, topic, partitions, some))
        yield found
        alone += [group for group in some if group not in found]
    for group in alone:
        yield {group: _asked_alone(cluster, topic, partitions, group)}


def _asked_together(
    cluster: Cluster, coordinator: int, topic: str, partitions: list[int], groups: Sequence[str]
) -> dict[str, Reader | None]:
    """The groups as their coordinator knows them, None for one that may not be described. Raises ClientError.

    A group that it does not coordinate any longer is left out.
    """
    connection = cluster.broker(coordinator)
    try:
        connection.send(DescribeGroupsRequest(groups=list(groups)))
        for group in groups:
            wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
            connection.send(OffsetFetchRequest(group_id=group, topics=[wanted]))
        described = _answer(cluster, connection)
        fetched = [_answer(cluster, connection) for _ in groups]
    except ClientError:
        cluster.drop(connection)  # answers may still be on their way
        raise
    assert isinstance(described, DescribeGroupsResponse)
    by_name = {each.group_id: each for each in described.groups}
    found: dict[str, Reader | None] = {}
    for group, answer in zip(groups, fetched, strict=True):
        assert isinstance(answer, OffsetFetchResponse)
        state = by_name.get(group)
        code = answer.error_code if state is None else state.error_code or answer.error_code
        if state is None or code in _ASKED_ALONE:
            continue
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            found[group] = None
            continue
        check(f"group {group}", code)
        is_consumer = state.protocol_type == PROTOCOL_TYPE
        assigned = [decode_assignment(member.member_assignment) if is_consumer else [] for member in state.members]
        found[group] = Reader(group, state.group_state, _count(topic, assigned), dict(_offsets(group, answer)))
    return found


def _answer(cluster: Cluster, connection: Connection) -> Message:
    answer = connection.receive(cluster.timeout_seconds)
    if answer is None:
        raise ConnectionLost(f"the broker at {connection.address} did not answer in time")
    return answer


def _offsets(group: str, answer: OffsetFetchResponse) -> Iterator[tuple[int, Position]]:
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                raise Refused(f"the offset of group {group} for {topic.name}-{each.partition_index}", each.error_code)
            if each.committed_offset >= 0:
                yield each.partition_index, Committed(each.committed_offset, each.metadata or "")


def _asked_alone(cluster: Cluster, topic: str, partitions: list[int], group: str) -> Reader | None:
    """One group, at its current coordinator; None if it may not be described. Raises ClientError."""
    try:
        described = describe_group(cluster, group)
        offsets = requests_of(described.type).read(cluster, group, [TopicPartition(topic, each) for each in partitions])
    except Refused as error:
        if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return None
        raise
    members = _count(topic, [member.partitions for member in described.members])
    return Reader(group, described.state, members, {where.partition: each for where, each in offsets.items()})


def _count(topic: str, assigned: Sequence[Sequence[TopicPartition]]) -> int:
    return sum(any(where.topic == topic for where in each) for each in assigned)
