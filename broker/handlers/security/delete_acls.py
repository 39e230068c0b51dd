"""Handles DeleteAcls (api 31), versions 0-3. Without an authorizer the result for each filter is SECURITY_DISABLED. KIP-140, KIP-290."""

from ottla.broker.handlers.security.acl_codes import failure_code, filter_of, refusal_of_change, refuse_unknown
from ottla.broker.network.request_channel import Completion
from ottla.broker.request.context import RequestContext
from ottla.pauses import each, pause
from ottla.protocol.acls import AclBinding
from ottla.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse


async def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse | Completion:
    """Delete the ACLs that the filters select, and list them by filter."""
    codes: set[int] = set()
    for asked in request.filters:
        await pause()
        codes.update((asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type))
    refused = refuse_unknown(codes, context)
    if refused is not None:
        return refused
    code, message = refusal_of_change(context)
    acls = context.broker.administration.acls
    if acls is None or code:
        results = await each(request.filters, lambda _: DeleteAclsFilterResult(error_code=code, error_message=message))
        return DeleteAclsResponse(filter_results=results)
    deleted = await acls.delete(await each(request.filters, filter_of))
    results = []
    for of_filter in deleted:
        await pause()
        matching = await each(of_filter, lambda one: _matching(*one))
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    return DeleteAclsResponse(filter_results=results)


def _matching(binding: AclBinding, failure: Exception | None) -> DeleteAclsMatchingAcl:
    code, message = failure_code(failure)
    return DeleteAclsMatchingAcl(
        error_code=code,
        error_message=message,
        resource_type=binding.pattern.resource_type,
        resource_name=binding.pattern.name,
        pattern_type=binding.pattern.pattern_type,
        principal=binding.entry.principal,
        host=binding.entry.host,
        operation=binding.entry.operation,
        permission_type=binding.entry.permission_type,
    )
