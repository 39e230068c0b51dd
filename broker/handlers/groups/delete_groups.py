"""Serves DeleteGroups (api 42), versions 0-3 (KIP-229)."""

from ottla.broker.request.context import RequestContext
from ottla.pauses import how_often, move, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Forget groups without members, with their offsets."""
    deleted: list[DeletableGroupResult] = []
    refused: list[DeletableGroupResult] = []
    names = context.scratch(await how_often(request.groups_names))
    for name in names:
        result = DeletableGroupResult(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if context.is_authorized(Operation.DELETE, ResourceType.GROUP, name):
            result.error_code = await context.broker.coordinators.groups.offsets.delete_group(name)
            deleted.append(result)
        else:
            refused.append(result)
        await pause()
    await move(refused, deleted)
    return DeleteGroupsResponse(results=deleted)
