"""Handles CreateAcls (api 30), versions 0-3. Without an authorizer the result for each ACL is SECURITY_DISABLED. KIP-140, KIP-290."""

from broker.handlers.security.acl_codes import refuse_unknown
from broker.network.request_channel import Completion
from broker.request.context import RequestContext
from broker.request.turns import Steps
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle_create_acls(request: CreateAclsRequest, context: RequestContext) -> Steps[CreateAclsResponse | Completion]:
    """Refuse each ACL."""
    code, message = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
    codes: set[int] = set()
    results = []
    for each in request.creations:
        codes.update((each.resource_type, each.resource_pattern_type, each.operation, each.permission_type))
        results.append(AclCreationResult(error_code=code, error_message=message))
        yield
    refused = refuse_unknown(codes, context)
    if refused is not None:
        return refused
    return CreateAclsResponse(results=results)
