"""Serves Heartbeat (api 12), versions 0-4: static members from 3 (KIP-345)."""

from ottla.broker.request.context import RequestContext
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle_heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Keep a member's session alive, and report a rebalance to it."""
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    groups = context.broker.coordinators.groups
    return HeartbeatResponse(
        error_code=groups.heartbeat(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    )
