"""Handles AlterPartitionReassignments (api 45), versions 0-1. KIP-455: moves partitions to other brokers, or cancels such
moves. From 1 the client can forbid that their replication factors change (KIP-860).

Only the active controller does so. It answers when the moves have begun, not when they are done. Null replicas cancel a move. The replicas
then have the same order as before the move; Apache Kafka loses that order.
"""

from ottla.broker.request.context import RequestContext
from ottla.controller.errors import NotController
from ottla.coordination.error_map import cut, error_code
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.topic_partition import TopicPartition


async def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel the move of each partition, and report whether that was possible."""
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        return await _denied(request)
    targets: dict[TopicPartition, tuple[int, ...] | None] = context.scratch({})
    for topic in request.topics:
        await pause()
        for partition in topic.partitions:
            await pause()
            replicas = None if partition.replicas is None else tuple(partition.replicas)
            targets[TopicPartition(topic.name, partition.partition_index)] = replicas
    try:
        results = await context.broker.cluster.controller.alter_reassignments(
            targets, may_change_factor=request.allow_replication_factor_change
        )
    except NotController:
        return _refused(ErrorCode.NOT_CONTROLLER)
    topics: dict[str, list[ReassignablePartitionResponse]] = context.scratch({})
    for (name, index), error in context.scratch(results).items():
        await pause()
        code = ErrorCode.NONE if error is None else error_code(error)
        message = None if error is None else cut(str(error))
        answer = ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
        topics.setdefault(name, []).append(answer)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message="",
        responses=await each(topics.items(), lambda named: ReassignableTopicResponse(name=named[0], partitions=named[1])),
    )


async def _denied(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = _refused(code)
    for topic in request.topics:
        partitions = await each(
            topic.partitions,
            lambda asked: ReassignablePartitionResponse(partition_index=asked.partition_index, error_code=code, error_message=code.message),
        )
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
        await pause()
    return response


def _refused(code: ErrorCode) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=code.message)
