"""Serves DescribeGroups (api 15), versions 0-6.

Authorized operations from 3 (KIP-430), static members from 4 (KIP-345).

A group that does not exist is described as Dead, from 6 with GROUP_ID_NOT_FOUND (KIP-1043), before without an error. Metadata and
assignments are shown while the group is Stable.
"""

from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.broker.security.authorizer import GROUP_CONFIG_OPERATIONS
from ottla.coordination.groups.classic_group import ClassicGroup
from ottla.coordination.groups.group import GroupState
from ottla.pauses import move, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse

FIRST_VERSION_WITH_NOT_FOUND = 6


async def handle_describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe each group; groups that the client may not describe come first, as in Apache Kafka."""
    refused: list[DescribedGroup] = []
    described: list[DescribedGroup] = []
    repeats = Repeats(context)
    for group_id in request.groups:
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            refused.append(DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id))
        elif repeats.are_too_many(group_id):
            described.append(DescribedGroup(error_code=ErrorCode.INVALID_REQUEST, group_id=group_id))
        else:
            described.append(await _describe(group_id, request, context))
        await pause()
    await move(described, refused)
    return DescribeGroupsResponse(groups=refused)


async def _describe(group_id: str, request: DescribeGroupsRequest, context: RequestContext) -> DescribedGroup:
    groups = context.broker.coordinators.groups
    error, group = groups.describe(group_id)
    if error:
        return DescribedGroup(error_code=error, group_id=group_id)
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if context.api_version >= FIRST_VERSION_WITH_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = (
                f"Group {group_id} {'not found' if groups.groups.get(group_id) is None else 'is not a classic group'}."
            )
    else:
        described = await _described(group)
    if request.include_authorized_operations:
        also = GROUP_CONFIG_OPERATIONS if context.broker.listed.is_beyond_3_9 else ()
        described.authorized_operations = context.access.operations(ResourceType.GROUP, group_id, also)
    return described


async def _described(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
    )
    # All of it at once: the group may change between two steps.
    members = [
        (member, member.member_id, *((member.metadata(group.protocol_name), member.assignment) if is_stable else (b"", b"")))
        for member in group.members.values()
    ]
    for member, member_id, metadata, assignment in members:
        described.members.append(
            DescribedGroupMember(
                member_id=member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=metadata,
                member_assignment=assignment,
            )
        )
        await pause()
    return described
