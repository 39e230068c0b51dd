"""Handles DescribeShareGroupOffsets (api 90), versions 0-1: where share groups are in partitions (KIP-932). The lag from 1 (KIP-1226)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.coordination.shares.positions import Position
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID


async def handle_describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group."""
    response = DescribeShareGroupOffsetsResponse()
    repeats = Repeats(context)
    for group in request.groups:
        error = ErrorCode.INVALID_REQUEST
        topics: list[DescribeShareGroupOffsetsResponseTopic] = []
        if not repeats.are_too_many(group.group_id):
            error, topics = await _describe(group, context)
        message = error.message if error else None
        response.groups.append(
            DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=topics, error_code=error, error_message=message)
        )
        await pause()
    return response


async def _describe(
    group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> tuple[ErrorCode, list[DescribeShareGroupOffsetsResponseTopic]]:
    groups = context.broker.coordinators.groups.share
    if not groups.is_served:
        return ErrorCode.UNSUPPORTED_VERSION, []
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, []
    error, initialized = groups.initialized(group.group_id) if group.group_id else (ErrorCode.NONE, {})
    if error:
        return error, []
    named: dict[str, Sequence[int]] = {}
    refused: dict[str, Sequence[int]] = {}
    if group.topics is None:
        for name, indexes in initialized.values():
            if context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name, log_if_denied=False):
                named[name] = sorted(indexes)
            await pause()
    else:
        for topic in group.topics:
            is_allowed = context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name)
            (named if is_allowed else refused)[topic.topic_name] = list(dict.fromkeys(topic.partitions))
            await pause()
    positions = await _positions(group.group_id, named, context)
    topics = [await _topic(name, indexes, positions, context) for name, indexes in named.items()]
    denied = Position(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.message, start_offset=0)
    for name, asked in refused.items():
        topics.append(await _topic(name, asked, {TopicPartition(name, index): denied for index in asked}, context, hide_id=True))
    return ErrorCode.NONE, topics


async def _positions(group_id: str, named: Mapping[str, Sequence[int]], context: RequestContext) -> dict[TopicPartition, Position]:
    """The positions in the partitions that exist."""
    metadata = context.broker.metadata
    keys = {}
    for name, indexes in named.items():
        for index in indexes:
            if name in metadata.topics and metadata.partition(name, index) is not None:
                keys[TopicPartition(name, index)] = SharePartitionKey(group_id, metadata.topics[name].topic_id, index)
            await pause()
    return await context.broker.coordinators.share_leader.positions.find(keys)


async def _topic(
    name: str,
    indexes: Sequence[int],
    positions: Mapping[TopicPartition, Position],
    context: RequestContext,
    hide_id: bool = False,
) -> DescribeShareGroupOffsetsResponseTopic:
    """Apache Kafka answers for partitions that do not exist as for those that no member has fetched."""
    topics = context.broker.metadata.topics
    topic_id = ZERO_UUID if hide_id or name not in topics else topics[name].topic_id
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
    for index in indexes:
        error, message, start_offset, leader_epoch, lag = positions.get(TopicPartition(name, index), Position())
        answer.partitions.append(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=start_offset,
                leader_epoch=leader_epoch,
                lag=lag,
                error_code=error,
                error_message=message,
            )
        )
        await pause()
    return answer
