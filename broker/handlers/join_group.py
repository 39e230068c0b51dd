"""JoinGroup (api 11), versions 0-9: a rebalance timeout of its own from 1 (KIP-62), a member id to come again with from 4 (KIP-394), static
members from 5 (KIP-345), protocol type from 7 (KIP-559), the reason from 8 (KIP-800), skipping the assignment from 9 (KIP-814).

The answer comes when the rebalance is complete.
"""

from __future__ import annotations

from broker.groups.effects import JoinResult
from broker.groups.group import Protocols
from broker.groups.joining import Join
from broker.handlers.delayed_answer import DelayedAnswer
from broker.network.request_channel import Pending
from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.schema import Message

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_REQUIRED_MEMBER_ID = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9


def handle_join_group(request: JoinGroupRequest, context: RequestContext) -> Message | Pending:
    """Become a member, or join a rebalance."""
    version = context.api_version
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return _response(JoinResult("", ErrorCode.GROUP_AUTHORIZATION_FAILED), version)
    answer = DelayedAnswer(context)
    has_rebalance_timeout = version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    join = Join(
        waiter=lambda result: answer.complete(_response(result, version)),
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.client_host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=_protocols(request.protocols),
        reason=request.reason or "not provided",
        requires_known_member_id=version >= FIRST_VERSION_WITH_REQUIRED_MEMBER_ID and request.group_instance_id is None,
        supports_skipping_assignment=version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
    )
    context.broker.groups.join(request.group_id, join)
    return answer.answer()


def _protocols(protocols: list[JoinGroupRequestProtocol]) -> Protocols:
    """In the client's order. One that is named twice counts once, or the votes would not add up."""
    found: dict[str, bytes] = {}
    for protocol in protocols:
        found.setdefault(protocol.name, protocol.metadata)
    return tuple(found.items())


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = ""
    response = JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id or "",
        member_id=result.member_id,
        members=result.members or [],
    )
    if result.skip_assignment:
        response.skip_assignment = True
    return response
