"""Handles ShareGroupDescribe (api 77), version 1: share groups, their members and assignments (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.handlers.groups.described_groups import completed, described_groups
from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.consumer.assignors import SIMPLE
from ottla.coordination.groups.consumer.members import Member as GroupMember
from ottla.pauses import pause
from ottla.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


async def handle_share_group_describe(request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse:
    """Describe each group."""
    groups = await described_groups(
        request.group_ids,
        context,
        lambda group_id, error: DescribedGroup(error_code=error, group_id=group_id),
        lambda group_id: _describe(group_id, request, context),
        is_served=context.broker.coordinators.groups.share.is_served,
    )
    return ShareGroupDescribeResponse(groups=groups)


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
    shown = [(*each.subscribed_topic_names, *[part.topic_name for part in each.assignment.topic_partitions]) for each in described.members]
    return await completed(described, shown, request, context)


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
