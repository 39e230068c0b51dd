"""Handles ListPartitionReassignments (api 46), version 0. KIP-455: the active controller lists partitions that are being moved."""

from collections.abc import Iterable

from ottla.broker.request.context import RequestContext
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """List the partitions that are being moved, of the requested ones or of all."""
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER):
        return await _denied(request)
    controller = context.broker.cluster.controller
    if not controller.is_active:
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=ErrorCode.NOT_CONTROLLER.message)
    assignments_of = controller.context.assignments
    wanted = None if request.topics is None else await _named(request.topics)
    topics = []
    for topic in list(assignments_of if wanted is None else wanted):
        await pause()
        indexes = None if wanted is None else wanted[topic]
        moving = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding_replicas),
                removing_replicas=list(assignment.removing_replicas),
            )
            for index, assignment in assignments_of.get(topic, {}).items()
            if assignment.is_reassigning and (indexes is None or index in indexes)
        ]
        if moving:
            topics.append(OngoingTopicReassignment(name=topic, partitions=moving))
    return ListPartitionReassignmentsResponse(error_message="", topics=topics)


async def _named(topics: Iterable[ListPartitionReassignmentsTopics]) -> dict[str, set[int]]:
    partitions: dict[str, set[int]] = {}
    for topic in topics:
        indexes = partitions.setdefault(topic.name, set())
        for index in topic.partition_indexes:
            indexes.add(index)
            await pause()
        await pause()
    return partitions


async def _denied(request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """The requested partitions with empty lists, as from Apache Kafka."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    topics = []
    for topic in request.topics or ():
        partitions = await each(topic.partition_indexes, lambda index: OngoingPartitionReassignment(partition_index=index))
        topics.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
        await pause()
    return ListPartitionReassignmentsResponse(error_code=code, error_message=code.message, topics=topics)
