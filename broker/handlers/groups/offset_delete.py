"""OffsetDelete (api 47), version 0 (KIP-496)."""

from broker.handlers.groups.group_topics import PartitionErrors, partitions_to_serve
from broker.request.context import RequestContext
from broker.request.turns import Steps
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle_offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> Steps[OffsetDeleteResponse]:
    """Forget a group's offsets of topics that no member subscribes to."""
    if not context.is_authorized(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    errors = PartitionErrors()
    found = yield from partitions_to_serve(request.topics, errors, context)
    served = [*dict.fromkeys(partition for partition, _ in found)]
    error, codes = context.broker.groups.offsets.delete_offsets(request.group_id, served)
    if error:
        return OffsetDeleteResponse(error_code=error)
    for (topic, index), code in zip(served, codes, strict=True):
        errors.add(topic, index, code)
    response = OffsetDeleteResponse()
    for topic, partitions in errors.by_topic.items():
        answer = OffsetDeleteResponseTopic(name=topic)
        for index, code in partitions:
            answer.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            yield
        response.topics.append(answer)
    return response
