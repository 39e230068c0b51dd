"""DeleteAcls (api 31), versions 0-3 (KIP-140, KIP-290). Without an authorizer there are no ACLs: SECURITY_DISABLED for each filter."""

from broker.handlers.acl_codes import refuse_unknown
from broker.network.request_channel import Completion
from broker.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse | Completion:
    """Refuse all."""
    codes = tuple(
        code
        for each in request.filters
        for code in (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
    )
    refused = refuse_unknown(codes, context)
    if refused is not None:
        return refused
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured.")
            for _ in request.filters
        ]
    )
