"""Handles DescribeAcls (api 29), versions 0-3. Without an authorizer the result is SECURITY_DISABLED. KIP-140, KIP-290."""

from ottla.broker.handlers.security.acl_codes import filter_of, refuse_unknown
from ottla.broker.network.request_channel import Completion
from ottla.broker.request.context import RequestContext
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse


async def handle_describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse | Completion:
    """List the ACLs that this broker knows, by pattern."""
    codes = (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    refused = refuse_unknown(codes, context)
    if refused is not None:
        return refused
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeAclsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
        )
    acls = context.broker.administration.acls
    if acls is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker")
    wanted = filter_of(request)
    index = acls.authorizer.index
    resources = []
    for pattern in list(index.patterns()):
        await pause()
        if not wanted.matches_pattern(pattern):
            continue
        described = [
            AclDescription(principal=each.principal, host=each.host, operation=each.operation, permission_type=each.permission_type)
            for each in index.entries(pattern)
            if wanted.matches_entry(each)
        ]
        if described:
            resources.append(
                DescribeAclsResource(
                    resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type, acls=described
                )
            )
    return DescribeAclsResponse(error_message="", resources=resources)
