"""ListGroups (api 16), versions 0-5: states from 4 (KIP-518), types from 5 (KIP-848)."""

from broker.groups.coordinator import CLASSIC
from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """The groups that this broker coordinates and the client may see."""
    error, groups = context.broker.groups.list(request.states_filter, request.types_filter)
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER):
        groups = [group for group in groups if context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)]
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type or "", group_state=group.state.value, group_type=CLASSIC)
            for group in groups
        ],
    )
