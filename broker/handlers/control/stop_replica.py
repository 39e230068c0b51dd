"""Handles StopReplica (api 5), versions 0-4. The controller stops replicas of this broker, and deletes some of them.

A request for an earlier incarnation of this broker is refused (KIP-380).
"""

from collections.abc import Coroutine
from typing import Any

from ottla.broker.handlers.control.control_epochs import is_broker_epoch_stale
from ottla.broker.request.context import RequestContext
from ottla.broker.request.turns import Steps
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.replication.control.controller_requests import stopped_partitions


def handle_stop_replica(
    request: StopReplicaRequest, context: RequestContext
) -> StopReplicaResponse | Steps[StopReplicaResponse] | Coroutine[Any, Any, StopReplicaResponse]:
    """Pass the request to the replica manager."""
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return _refused(request)
    if is_broker_epoch_stale(request.broker_epoch, context):
        return StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    return context.broker.cluster.control_requests.on_stop_replica(request)


def _refused(request: StopReplicaRequest) -> Steps[StopReplicaResponse]:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = StopReplicaResponse(error_code=code)
    for (topic, index), _, _ in stopped_partitions(request):
        response.partition_errors.append(StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code))
        yield
    return response
