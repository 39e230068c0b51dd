"""DescribeAcls (api 29), versions 0-3 (KIP-140, KIP-290). Without an authorizer there are no ACLs: SECURITY_DISABLED."""

from broker.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle_describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Say that there are none."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker")
