"""DeleteAcls (api 31), versions 0-3 (KIP-140, KIP-290). Without an authorizer there are no ACLs: SECURITY_DISABLED for each filter."""

from broker.handlers.security.acl_codes import refuse_unknown
from broker.network.request_channel import Completion
from broker.request.context import RequestContext
from broker.request.turns import Steps
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> Steps[DeleteAclsResponse | Completion]:
    """Refuse all."""
    codes: set[int] = set()
    results = []
    for each in request.filters:
        codes.update((each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type))
        results.append(DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."))
        yield
    refused = refuse_unknown(codes, context)
    if refused is not None:
        return refused
    return DeleteAclsResponse(filter_results=results)
