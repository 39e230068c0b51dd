"""OffsetDelete (api 47), version 0 (KIP-496)."""

from broker.handlers.group_topics import PartitionErrors, partitions_to_serve
from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from storage.topic_partition import TopicPartition


def handle_offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Forget a group's offsets of topics that no member subscribes to."""
    if not context.is_authorized(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    errors = PartitionErrors()
    asked = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    served = [TopicPartition(*asked[i]) for i in partitions_to_serve(asked, errors, context)]
    error, codes = context.broker.groups.offsets.delete_offsets(request.group_id, served)
    if error:
        return OffsetDeleteResponse(error_code=error)
    for (topic, index), code in zip(served, codes, strict=True):
        errors.add(topic, index, code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic,
                partitions=[OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index, code in partitions],
            )
            for topic, partitions in errors.by_topic.items()
        ]
    )
