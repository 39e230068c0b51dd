"""Handles AllocateProducerIds (api 67), version 0. KIP-730: the controller gives a block of producer ids to a broker."""

from ottla.broker.request.context import RequestContext
from ottla.controller.errors import ControllerError
from ottla.coordination.error_map import error_code
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def handle_allocate_producer_ids(request: AllocateProducerIdsRequest, context: RequestContext) -> AllocateProducerIdsResponse:
    """Give a block that was never given before."""
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        block = await context.broker.cluster.controller.allocate_producer_id_block(request.broker_id, request.broker_epoch)
    except ControllerError as error:
        return AllocateProducerIdsResponse(error_code=error_code(error))
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)
