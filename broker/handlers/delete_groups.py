"""DeleteGroups (api 42), versions 0-2 (KIP-229)."""

from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Forget groups without members, with their offsets."""
    names = list(dict.fromkeys(request.groups_names))
    allowed = [name for name in names if context.is_authorized(Operation.DELETE, ResourceType.GROUP, name)]
    codes = context.broker.groups.offsets.delete_groups(allowed)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=codes.get(name, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            for name in [*allowed, *(name for name in names if name not in codes)]
        ]
    )
