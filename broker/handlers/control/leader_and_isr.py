"""Handles LeaderAndIsr (api 4), versions 0-7. The controller assigns the partitions that this broker leads and follows.

A request for an earlier incarnation of this broker is refused (KIP-380). Topic ids from 5 (KIP-516).
"""

from ottla.broker.handlers.control.control_epochs import is_broker_epoch_stale
from ottla.broker.request.context import RequestContext
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)

FIRST_VERSION_BY_TOPIC = 5


async def handle_leader_and_isr(request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
    """Pass the request to the replica manager."""
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return await _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, context)
    if is_broker_epoch_stale(request.broker_epoch, context):
        return await _refused(request, ErrorCode.STALE_BROKER_EPOCH, context)
    response = await context.broker.cluster.control_requests.on_leader_and_isr(request)
    if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
        return await _refused(request, ErrorCode.STALE_CONTROLLER_EPOCH, context)
    return _worded(response, context)


def _worded(response: LeaderAndIsrResponse, context: RequestContext) -> LeaderAndIsrResponse:
    """The response with its errors grouped by topic or in one list, as the version requires."""
    if context.api_version >= FIRST_VERSION_BY_TOPIC:
        response.partition_errors = []
    else:
        response.topics = []
    return response


async def _refused(request: LeaderAndIsrRequest, code: ErrorCode, context: RequestContext) -> LeaderAndIsrResponse:
    """A response with the same error for the request and each partition."""
    response = LeaderAndIsrResponse(error_code=code)
    for topic in request.topic_states:
        errors = []
        for state in topic.partition_states:
            errors.append(LeaderAndIsrPartitionError(topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code))
            await pause()
        response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        response.partition_errors.extend(errors)
        await pause()
    for state in request.ungrouped_partition_states:
        response.partition_errors.append(
            LeaderAndIsrPartitionError(topic_name=state.topic_name, partition_index=state.partition_index, error_code=code)
        )
        await pause()
    return _worded(response, context)
