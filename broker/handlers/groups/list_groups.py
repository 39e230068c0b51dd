"""Serves ListGroups (api 16), versions 0-5: states from 4 (KIP-518), types from 5 (KIP-848)."""

from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.group import GroupState
from ottla.pauses import each, how_often, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """The groups that this broker coordinates and the client may see."""
    states = context.scratch(await how_often(context.scratch(await each(request.states_filter, str.lower))))
    types = context.scratch(await how_often(context.scratch(await each(request.types_filter, str.lower))))
    wanted_states = {state for state in GroupState if not states or state.value.lower() in states}
    error, groups = context.broker.coordinators.groups.list()
    sees_all = context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER, log_if_denied=False)
    listed = []
    for group in groups:
        await pause()
        if group.is_dead or group.state not in wanted_states or (types and group.group_type not in types):
            continue
        if sees_all or context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, log_if_denied=False):
            name, kind, state = group.group_id, group.protocol_type or "", group.state.value
            listed.append(ListedGroup(group_id=name, protocol_type=kind, group_state=state, group_type=group.group_type))
    return ListGroupsResponse(error_code=error, groups=listed)
