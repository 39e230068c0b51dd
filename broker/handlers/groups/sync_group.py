"""Serves SyncGroup (api 14), versions 0-5.

Static members from 3 (KIP-345), protocol type and name, which must be given, from 5 (KIP-559).

The answer is sent when the leader's assignment is stored.
"""

from __future__ import annotations

from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.groups.effects import SyncResult
from ottla.coordination.groups.syncing import Sync
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.schema.message import Message

FIRST_VERSION_WITH_PROTOCOL = 5


async def handle_sync_group(request: SyncGroupRequest, context: RequestContext) -> Message | Answer:
    """Hand in the assignments, or ask for one's own."""
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assignments: dict[str, bytes] = {}
    for each in request.assignments:
        assignments[each.member_id] = each.assignment
        await pause()
    answer = DelayedAnswer(context)
    sync = Sync(
        waiter=lambda result: answer.complete(_response(result)),
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=assignments,
    )
    context.broker.coordinators.groups.sync(request.group_id, sync)
    return answer.answer()


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error, protocol_type=result.protocol_type, protocol_name=result.protocol_name, assignment=result.assignment
    )
