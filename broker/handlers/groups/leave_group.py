"""Serves LeaveGroup (api 13), versions 0-5: many members at once, and static ones, from 3 (KIP-345), the reason from 5 (KIP-800)."""

from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.rebalance import reason_of
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

FIRST_VERSION_WITH_MANY_MEMBERS = 3
MEMBERS_TOGETHER = 500
"""Members that leave together; so many take a millisecond."""


async def handle_leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Take members out of their group at once, without waiting for their sessions to end."""
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    groups = context.broker.coordinators.groups
    if context.api_version < FIRST_VERSION_WITH_MANY_MEMBERS:
        error, errors = groups.leave(request.group_id, [Leaving(request.member_id, None)])
        return LeaveGroupResponse(error_code=error or errors[0])
    leaving = []
    for each in request.members:
        leaving.append(Leaving(each.member_id, each.group_instance_id, reason_of(each.reason)))
        await pause()
    response = LeaveGroupResponse()
    for begin in range(0, len(leaving) or 1, MEMBERS_TOGETHER):
        some = leaving[begin : begin + MEMBERS_TOGETHER]
        error, errors = groups.leave(request.group_id, some)
        if error:
            return LeaveGroupResponse(error_code=error)
        response.members += [
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each, code in zip(some, errors, strict=True)
        ]
        await pause()
    return response
