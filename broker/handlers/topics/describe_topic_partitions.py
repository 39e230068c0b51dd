"""Handles DescribeTopicPartitions (api 75), version 0. KIP-966: lists the partitions of topics page by page.

Topics are sorted by name; without names, all topics are listed. The client and `max.request.partition.size.limit` limit the partitions of
an answer. `next_cursor` is the beginning of the next page.
"""

from __future__ import annotations

from broker.handlers.topics.metadata import visible_partition
from broker.request.context import RequestContext
from broker.request.first_metadata import after_first_metadata
from broker.request.internal_topics import INTERNAL_TOPICS
from broker.request.turns import Steps
from broker.security.authorizer import Operation, ResourceType
from config.keys.network import MAX_REQUEST_PARTITION_SIZE_LIMIT
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from replication.ports.cluster import TopicImage


@after_first_metadata
def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Steps[DescribeTopicPartitionsResponse]:
    """List the partitions from the cursor on."""
    cluster = context.broker.metadata
    asks_for_all = not request.topics
    names = sorted(cluster.topics if asks_for_all else {topic.name for topic in request.topics})
    first_partition = 0
    cursor = request.cursor
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_partition = max(cursor.partition_index, 0)
    left = max(min(request.response_partition_limit, context.broker.config[MAX_REQUEST_PARTITION_SIZE_LIMIT]), 1)
    response = DescribeTopicPartitionsResponse()
    refused = []
    for name in names:
        yield
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name):
            if not asks_for_all:
                refused.append(DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
            continue
        image = cluster.topics.get(name)
        if image is None:
            if not asks_for_all:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                response.topics.append(
                    DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
                )
            continue
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
            break
        indexes = [index for index in sorted(image.partitions) if index >= first_partition]
        first_partition = 0
        response.topics.append(_topic(image, indexes[:left], context))
        if len(indexes) > left:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
    response.topics += refused
    return response


def _topic(image: TopicImage, indexes: list[int], context: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in indexes:
        seen = visible_partition(image.partitions[index], context)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=seen.error_code,
                partition_index=index,
                leader_id=seen.leader_id,
                leader_epoch=seen.leader_epoch,
                replica_nodes=seen.replica_nodes,
                isr_nodes=seen.isr_nodes,
                offline_replicas=seen.offline_replicas,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=image.name,
        topic_id=image.topic_id,
        is_internal=image.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=context.access.operations(ResourceType.TOPIC, image.name),
    )
