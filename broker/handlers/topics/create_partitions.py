"""Handles CreatePartitions (api 37), versions 0-3. KIP-195: adds partitions to topics.

From 3 a client that has exhausted its quota for partitions is refused (KIP-599); earlier versions are throttled afterwards.

Only the active controller's broker does so. The answer comes when the new partitions have leaders, or after the timeout.
"""

from ottla.broker.request.context import RequestContext
from ottla.controller.admin.partition_growth import NewPartitions
from ottla.controller.errors import ControllerError
from ottla.coordination.error_map import api_error
from ottla.pauses import how_often, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

FIRST_WITH_STRICT_QUOTA = 3


async def handle_create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Add partitions where that is possible. A topic that is named twice is answered once."""
    quota = context.mutation_quota(strict_since=FIRST_WITH_STRICT_QUOTA)
    results: dict[str, CreatePartitionsTopicResult] = context.scratch({})
    for topic in request.topics:
        await pause()
        results[topic.name] = CreatePartitionsTopicResult(name=topic.name, error_message=None)
    controller = context.broker.cluster.controller
    if not controller.is_active:
        for result in results.values():
            result.error_code = ErrorCode.NOT_CONTROLLER
            await pause()
        return CreatePartitionsResponse(results=list(results.values()))
    times = context.scratch(await how_often(topic.name for topic in request.topics))
    growing: list[NewPartitions] = context.scratch([])
    for topic in request.topics:
        await pause()
        result = results[topic.name]
        if times[topic.name] > 1:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "Duplicate topic in request."
        elif not context.is_authorized(Operation.ALTER, ResourceType.TOPIC, topic.name):
            result.error_code, result.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed."
        elif controller.context.is_being_deleted(topic.name):
            result.error_code, result.error_message = ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion."
        else:
            growing.append(_new_partitions(topic))
    outcomes = await context.broker.administration.partition_growth.create_partitions(
        growing, validate_only=request.validate_only, timeout_ms=request.timeout_ms, take_mutations=quota.take
    )
    for name, outcome in context.scratch(outcomes).items():
        await pause()
        if isinstance(outcome, ControllerError):
            results[name].error_code, results[name].error_message = api_error(outcome)
    return CreatePartitionsResponse(results=list(results.values()))


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)
