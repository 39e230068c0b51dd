"""Handles DescribeTopicPartitions (api 75), version 0. KIP-966: lists the partitions of topics page by page.

Topics are sorted by name; without names, all topics are listed. The client and `max.request.partition.size.limit` limit the partitions of
an answer. `next_cursor` is the beginning of the next page.
"""

from __future__ import annotations

from itertools import islice

from ottla.broker.handlers.topics.metadata import visible_partition
from ottla.broker.request.context import RequestContext
from ottla.broker.request.first_metadata import after_first_metadata
from ottla.config.keys.network import MAX_REQUEST_PARTITION_SIZE_LIMIT
from ottla.controller.znodes.topic_names import is_valid_topic_name
from ottla.coordination.internal_topics import INTERNAL_TOPICS
from ottla.pauses import each, how_often, in_order, move, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState
from ottla.replication.ports.cluster import TopicImage


@after_first_metadata
async def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """List the partitions from the cursor on."""
    cluster = context.broker.metadata
    asks_for_all = not request.topics
    topics = cluster.topics if asks_for_all else context.scratch(await how_often(topic.name for topic in request.topics))
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or not (asks_for_all or cursor.topic_name in topics)):
        return DescribeTopicPartitionsResponse(topics=await each(request.topics, _refused))
    names = await in_order(name for name in topics if cursor is None or name >= cursor.topic_name)
    left = max(min(request.response_partition_limit, context.broker.config[MAX_REQUEST_PARTITION_SIZE_LIMIT]), 1)
    response = DescribeTopicPartitionsResponse()
    refused: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        await pause()
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name):
            if not asks_for_all:
                refused.append(DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
            continue
        image = cluster.topics.get(name)
        if image is None:
            if not asks_for_all:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
                response.topics.append(
                    DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
                )
            continue
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
            break
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        indexes = list(islice((await in_order(index for index in image.partitions if index >= first)), left + 1))
        response.topics.append(await _topic(image, indexes[:left], context))
        if len(indexes) > left:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
    await move(refused, response.topics)
    return response


def _refused(topic: TopicRequest) -> DescribeTopicPartitionsResponseTopic:
    """The answer about a topic if the cursor has no partition, or has a topic that is not asked for."""
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)


async def _topic(image: TopicImage, indexes: list[int], context: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=image.name,
        topic_id=image.topic_id,
        is_internal=image.name in INTERNAL_TOPICS,
        partitions=(await each(indexes, lambda index: _partition(image.partitions[index], context))),
        topic_authorized_operations=context.access.operations(ResourceType.TOPIC, image.name),
    )


def _partition(state: UpdateMetadataPartitionState, context: RequestContext) -> DescribeTopicPartitionsResponsePartition:
    seen = visible_partition(state, context)
    # Java's Admin of 4.x fails on null. Apache Kafka 3.9 answers null, because it has no such replicas either.
    none: list[int] | None = [] if context.broker.listed.is_beyond_3_9 else None
    return DescribeTopicPartitionsResponsePartition(
        error_code=seen.error_code,
        partition_index=seen.partition_index,
        leader_id=seen.leader_id,
        leader_epoch=seen.leader_epoch,
        replica_nodes=seen.replica_nodes,
        isr_nodes=seen.isr_nodes,
        eligible_leader_replicas=none,
        last_known_elr=none,
        offline_replicas=seen.offline_replicas,
    )
