"""Handles DescribeCluster (api 60), versions 0-2. KIP-700; the type of endpoint from 1 (KIP-919), fenced brokers from 2 (KIP-1073).

Only brokers are supported endpoints. No broker is fenced, because one without a session is no member.
"""

from ottla.broker.request.context import RequestContext
from ottla.broker.request.first_metadata import after_first_metadata
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2


@after_first_metadata
def handle_describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Describe the cluster: its id, its controller, and the brokers that have the client's listener."""
    if request.endpoint_type != BROKERS:
        return _refuse(request.endpoint_type, context)
    broker = context.broker
    brokers = [
        DescribeClusterBroker(broker_id=live.broker_id, host=endpoint.host, port=endpoint.port, rack=live.rack)
        for live in broker.metadata.brokers.values()
        if (endpoint := live.endpoints.get(context.client.listener_name)) is not None
    ]
    controller_id = broker.metadata.controller_id
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=controller_id if any(each.broker_id == controller_id for each in brokers) else -1,
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = 0
        if context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER):
            response.cluster_authorized_operations = context.access.operations(ResourceType.CLUSTER)
    return response


def _refuse(endpoint_type: int, context: RequestContext) -> DescribeClusterResponse:
    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    message = f"Unsupported endpoint type {endpoint_type}"
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    return DescribeClusterResponse(
        error_code=ErrorCode.INVALID_REQUEST if context.api_version == 0 else code, error_message=message, cluster_id=""
    )
