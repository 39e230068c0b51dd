"""Serves ConsumerGroupDescribe (api 69), versions 0-1: the types of members from 1 (KIP-1099).

Refused while the feature `group.version` is not finalized, as by Apache Kafka 3.9 (KIP-848).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.broker.handlers.groups.described_groups import completed, described_groups
from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.consumer.assignors import Assignment as Assigned
from ottla.coordination.groups.consumer.members import Member as GroupMember
from ottla.coordination.groups.consumer.members import indexes_of
from ottla.pauses import pause
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle_consumer_group_describe(request: ConsumerGroupDescribeRequest, context: RequestContext) -> ConsumerGroupDescribeResponse:
    """Describe each group."""
    groups = await described_groups(
        request.group_ids,
        context,
        lambda group_id, error: DescribedGroup(error_code=error, group_id=group_id),
        lambda group_id: _describe(group_id, request, context),
        is_served=context.broker.coordinators.groups.consumer.is_served,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(group_id: str, request: ConsumerGroupDescribeRequest, context: RequestContext) -> DescribedGroup:
    consumer = context.broker.coordinators.groups.consumer
    error, message, group = consumer.describe(group_id)
    if group is None:
        return DescribedGroup(error_code=error, error_message=message, group_id=group_id)
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=consumer.assignor_of(group),
    )
    names = context.broker.metadata.names_by_id
    target = dict(group.target)
    for member in list(group.members.values()):  # all of it at once: the group may change between two steps
        described.members.append(_member(member, target.get(member.member_id, {}), names))
        await pause()
    shown = [
        (
            *each.subscribed_topic_names,
            *[part.topic_name for part in each.assignment.topic_partitions],
            *[part.topic_name for part in each.target_assignment.topic_partitions],
        )
        for each in described.members
    ]
    return await completed(described, shown, request, context)


def _member(member: GroupMember, target: Assigned, names: Mapping[bytes, str]) -> Member:
    has = indexes_of(member.assigned)
    for topic, partitions in member.revoking.items():
        has[topic] = has.get(topic, frozenset()) | partitions.keys()
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(has, names),
        target_assignment=_assignment(target, names),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assigned: Assigned, names: Mapping[bytes, str]) -> Assignment:
    """The partitions of topics that still exist."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, topic_name=names[topic], partitions=sorted(indexes))
            for topic, indexes in assigned.items()
            if topic in names
        ]
    )
