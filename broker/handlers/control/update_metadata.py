"""Handles UpdateMetadata (api 6), versions 0-8. The controller sends the metadata of the cluster.

A request for an earlier incarnation of this broker is refused (KIP-380).
"""

from ottla.broker.handlers.control.control_epochs import is_broker_epoch_stale
from ottla.broker.request.context import RequestContext
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def handle_update_metadata(request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
    """Pass the request to the metadata cache."""
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if is_broker_epoch_stale(request.broker_epoch, context):
        return UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    return await context.broker.cluster.control_requests.on_update_metadata(request)
