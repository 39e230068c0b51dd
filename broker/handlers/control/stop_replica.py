"""Handles StopReplica (api 5), versions 0-4. The controller stops replicas of this broker, and deletes some of them.

A request for an earlier incarnation of this broker is refused (KIP-380).
"""

from ottla.broker.handlers.control.control_epochs import is_broker_epoch_stale
from ottla.broker.request.context import RequestContext
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.replication.control.controller_requests import stopped_partitions


async def handle_stop_replica(request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    """Pass the request to the replica manager."""
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return await _refused(request)
    if is_broker_epoch_stale(request.broker_epoch, context):
        return StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    return await context.broker.cluster.control_requests.on_stop_replica(request)


async def _refused(request: StopReplicaRequest) -> StopReplicaResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = StopReplicaResponse(error_code=code)
    for (topic, index), _, _ in stopped_partitions(request):
        response.partition_errors.append(StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code))
        await pause()
    return response
