"""Handles ShareGroupDescribe (api 77), version 1: share groups, their members and assignments (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.groups.consumer.assignors import SIMPLE
from ottla.broker.groups.consumer.members import Member as GroupMember
from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.broker.security.authorizer import GROUP_CONFIG_OPERATIONS
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


async def handle_share_group_describe(request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse:
    """Describe each group; groups that the client may not describe come first, as in Apache Kafka."""
    refused = []
    described = []
    repeats = Repeats()
    is_served = context.broker.coordinators.groups.share.is_served
    for group_id in request.group_ids:
        if not is_served:
            refused.append(DescribedGroup(error_code=ErrorCode.UNSUPPORTED_VERSION, group_id=group_id))
        elif not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            refused.append(DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id))
        elif repeats.are_too_many(group_id):
            described.append(DescribedGroup(error_code=ErrorCode.INVALID_REQUEST, group_id=group_id))
        else:
            described.append(await _describe(group_id, request, context))
        await pause()
    return ShareGroupDescribeResponse(groups=refused + described)


async def _describe(group_id: str, request: ShareGroupDescribeRequest, context: RequestContext) -> DescribedGroup:
    error, message, group = context.broker.coordinators.groups.share.describe(group_id)
    if group is None:
        return DescribedGroup(error_code=error, error_message=message, group_id=group_id)
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=SIMPLE,
    )
    names = context.broker.metadata.names_by_id
    for member in list(group.members.values()):  # all of it at once: the group may change between two steps
        described.members.append(_member(member, names))
        await pause()
    seen: dict[str, bool] = {}
    for shown in described.members:
        for name in (*shown.subscribed_topic_names, *[each.topic_name for each in shown.assignment.topic_partitions]):
            if name not in seen:
                seen[name] = context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name, log_if_denied=False)
            if not seen[name]:
                message = "The group has described topic(s) that the client is not authorized to describe."
                return DescribedGroup(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=message, group_id=group_id)
        await pause()
    if request.include_authorized_operations:
        described.authorized_operations = context.access.operations(ResourceType.GROUP, group_id, GROUP_CONFIG_OPERATIONS)
    return described


def _member(member: GroupMember, names: Mapping[bytes, str]) -> Member:
    assigned = [
        TopicPartitions(topic_id=topic, topic_name=names[topic], partitions=sorted(indexes))
        for topic, indexes in member.assigned.items()
        if topic in names
    ]
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(topic_partitions=assigned),
    )
