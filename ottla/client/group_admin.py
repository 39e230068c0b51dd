"""Lists, describes and deletes groups, over all coordinators."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.client.assignor import PROTOCOL_TYPE, decode_assignment, decode_topics
from ottla.client.cluster import Cluster, ClusterChange
from ottla.client.connection import Address
from ottla.client.errors import ClientError, Refused, check
from ottla.client.reachable import of_brokers, of_coordinators
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition

_TYPES_SINCE = 5
_STATES_SINCE = 4
NO_GROUP = "Dead"
CONSUMER: Final = "Consumer"
SHARE: Final = "Share"


class ListedGroup(NamedTuple):
    """A group in a list. Old brokers report neither state nor type."""

    group: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


class Member(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: list[str]
    partitions: list[TopicPartition]


class DescribedGroup(NamedTuple):
    """A group with its members; `state` is Dead when it does not exist."""

    group: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: str
    members: list[Member]
    epoch: int | None = None
    """The epoch of the group. Coordinators do not report the generation of a classic group."""

    def owners(self) -> dict[TopicPartition, list[Member]]:
        """The members that have each partition: one, or several of a share group."""
        found: dict[TopicPartition, list[Member]] = {}
        for member in self.members:
            for partition in member.partitions:
                found.setdefault(partition, []).append(member)
        return found


class _DescribedBy(NamedTuple):
    """The API that describes the groups of a type."""

    key: ApiKey
    request: type[ConsumerGroupDescribeRequest | ShareGroupDescribeRequest]
    response: type[Message]
    type: str
    protocol_type: str


_DESCRIBED_BY: Final = (
    _DescribedBy(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, CONSUMER, PROTOCOL_TYPE),
    _DescribedBy(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest, ShareGroupDescribeResponse, SHARE, SHARE.lower()),
)


def list_groups(cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """The groups of all brokers. Raises ClientError when one does not answer, or does not support a filter."""
    found, errors = reachable_groups(cluster, states, types)
    for error in errors.values():
        raise error
    return found


def reachable_groups(
    cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = (), broker_ids: Sequence[int] | None = None
) -> tuple[list[ListedGroup], dict[int, ClientError]]:
    """The groups of the brokers that answer, by default among all live ones, and the error of each other broker."""

    def listed(own: Cluster, broker_id: int) -> list[ListedGroup]:
        connection = own.broker(broker_id)
        version = connection.version_of(ApiKey.LIST_GROUPS)
        if (states and version < _STATES_SINCE) or (types and version < _TYPES_SINCE):
            raise ClientError(f"the broker at {connection.address} cannot filter groups by {'type' if types else 'state'}")
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = own.ask_broker(broker_id, request, ListGroupsResponse)
        check(f"the groups of broker {broker_id}", answer.error_code)
        return [
            ListedGroup(group.group_id, group.protocol_type, group.group_state, group.group_type.capitalize(), broker_id)
            for group in answer.groups
        ]

    found, errors = of_brokers(cluster, listed, broker_ids)
    return sorted(group for of_one in found.values() for group in of_one), errors


def describe_group(cluster: Cluster, group: str) -> DescribedGroup:
    """A group of any type. Raises Refused."""

    def attempt() -> DescribedGroup:
        address = cluster.coordinator(group)
        for described_by in _DESCRIBED_BY:
            found = _describe(cluster, group, address, described_by) if described_by.key in cluster.connection(address).versions else None
            if found is not None:
                return found
        answer = cluster.ask(lambda: cluster.connection(address), DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse)
        (described,) = answer.groups
        if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(f"group {group}", described.error_code)
        is_consumer = described.protocol_type == PROTOCOL_TYPE
        members = [
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                decode_topics(member.member_metadata) if is_consumer else [],
                decode_assignment(member.member_assignment) if is_consumer else [],
            )
            for member in described.members
        ]
        state = described.group_state or NO_GROUP
        return DescribedGroup(group, state, "Classic", described.protocol_type, described.protocol_data, str(address), members)

    return cluster.until_done(attempt)


def _describe(cluster: Cluster, group: str, address: Address, by: _DescribedBy) -> DescribedGroup | None:
    """A group whose members send heartbeats with epochs (KIP-848, KIP-932); None for groups of other types."""
    answer: Any = cluster.ask(lambda: cluster.connection(address), by.request(group_ids=[group]), by.response)
    (described,) = answer.groups
    if described.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(f"group {group}", described.error_code, described.error_message)
    members = [
        Member(
            member.member_id,
            getattr(member, "instance_id", None),  # members of share groups have none
            member.client_id,
            member.client_host,
            member.subscribed_topic_names,
            [TopicPartition(topic.topic_name, number) for topic in member.assignment.topic_partitions for number in topic.partitions],
        )
        for member in described.members
    ]
    state, epoch = described.group_state, described.group_epoch
    return DescribedGroup(group, state, by.type, by.protocol_type, described.assignor_name, str(address), members, epoch)


def delete_groups(cluster: Cluster, groups: Sequence[str]) -> dict[str, ClientError | None]:
    """Delete groups with their offsets; the outcome of each. A coordinator that does not answer takes the timeout once."""
    return dict(of_coordinators("group", groups, cluster.coordinator, partial(_delete_group, cluster)))


def _delete_group(cluster: Cluster, group: str) -> None:
    deletion = ClusterChange(cluster, DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse, ErrorCode.GROUP_ID_NOT_FOUND)

    def attempt() -> None:
        address = cluster.coordinator(group)
        code = deletion.ask(lambda: cluster.connection(address)).results[0].error_code
        if code:
            raise deletion.explained(Refused(f"group {group}", code))

    cluster.until_done(attempt)
