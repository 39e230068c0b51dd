"""Handles ControlledShutdown (api 7), versions 0-3. The controller moves leaderships away from a broker that is about to stop.

A broker that is not the controller answers STALE_CONTROLLER_EPOCH, as Apache Kafka does for this API alone.
"""

from ottla.broker.request.context import RequestContext
from ottla.controller.errors import BrokerNotAvailable, ControllerError, NotController
from ottla.coordination.error_map import error_code
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse, RemainingPartition

UNKNOWN_BROKER_EPOCH = -1


async def handle_controlled_shutdown(request: ControlledShutdownRequest, context: RequestContext) -> ControlledShutdownResponse:
    """Move the leaderships, and list the partitions for which that was not possible."""
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return ControlledShutdownResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        remaining = await context.broker.cluster.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    except NotController:
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    except BrokerNotAvailable:
        # Apache Kafka fails when it compares the epoch of an unknown broker.
        is_compared = request.broker_epoch != UNKNOWN_BROKER_EPOCH
        code = ErrorCode.UNKNOWN_SERVER_ERROR if is_compared else ErrorCode.BROKER_NOT_AVAILABLE
        return ControlledShutdownResponse(error_code=code)
    except ControllerError as error:
        return ControlledShutdownResponse(error_code=error_code(error))
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=topic, partition_index=index) for topic, index in remaining]
    )
