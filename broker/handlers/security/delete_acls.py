"""Handles DeleteAcls (api 31), versions 0-3. Without an authorizer the result for each filter is SECURITY_DISABLED. KIP-140, KIP-290."""

from broker.handlers.security.acl_codes import refuse_unknown
from broker.network.request_channel import Completion
from broker.request.context import RequestContext
from broker.request.turns import Steps
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> Steps[DeleteAclsResponse | Completion]:
    """Refuse each filter."""
    code, message = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
    codes: set[int] = set()
    results = []
    for each in request.filters:
        codes.update((each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type))
        results.append(DeleteAclsFilterResult(error_code=code, error_message=message))
        yield
    refused = refuse_unknown(codes, context)
    if refused is not None:
        return refused
    return DeleteAclsResponse(filter_results=results)
