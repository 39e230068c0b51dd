"""Handles DescribeAcls (api 29), versions 0-3. Without an authorizer the result is SECURITY_DISABLED. KIP-140, KIP-290."""

from broker.handlers.security.acl_codes import refuse_unknown
from broker.network.request_channel import Completion
from broker.request.context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle_describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse | Completion:
    """Refuse the request."""
    codes = (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    refused = refuse_unknown(codes, context)
    if refused is not None:
        return refused
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeAclsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
        )
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker")
