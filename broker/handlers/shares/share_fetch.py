"""Handles ShareFetch (api 78), versions 1-2: a member acquires records, and acknowledges those that it has processed (KIP-932).

Version 2 has the mode of acquiring (KIP-1206) and can renew locks (KIP-1222). A fetch that can acquire nothing waits up to `max_wait_ms`.
The final epoch ends the member's session.
"""

from __future__ import annotations

from ottla.broker.handlers.shares.share_requests import Acknowledging, acknowledged_in
from ottla.broker.handlers.shares.waiting_fetch import WaitingFetch
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.record_states import AcquireMode
from ottla.coordination.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession, ShareSessions
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.protocol.schema.message import Message


async def handle_share_fetch(request: ShareFetchRequest, context: RequestContext) -> Message | Answer:
    """Acknowledge first; then acquire what the session's partitions have."""
    group_id, member_id = request.group_id, request.member_id
    if group_id is None or not member_id:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, group_id):
        return ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    acknowledged = await acknowledged_in(request.topics)
    if _is_invalid(request, bool(acknowledged)):
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    sessions = context.broker.coordinators.share_leader.sessions
    key = SessionKey(group_id, member_id)
    if request.share_session_epoch == INITIAL_EPOCH:
        error, session = sessions.begin(key, context.client)
    else:
        error, session = sessions.use(key, request.share_session_epoch, context.client)
    if session is None:
        return ShareFetchResponse(error_code=error)
    if request.share_acquire_mode not in AcquireMode.__members__.values():
        return ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    if request.share_session_epoch != FINAL_EPOCH and not await _has_updated(session, sessions, request):
        sessions.end(session)
        return ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    fetch = WaitingFetch(request, session, context)
    acknowledging = Acknowledging(context, fetch.on_acknowledged)
    await acknowledging.acknowledge(acknowledged, group_id, member_id, may_renew=request.is_renew_ack)
    fetch.begin()
    return fetch.pending


def _is_invalid(request: ShareFetchRequest, acknowledges: bool) -> bool:
    """Whether the request cannot be right: the first one of a session acknowledges, or one that renews locks also acquires."""
    if request.share_session_epoch == INITIAL_EPOCH and acknowledges:
        return True
    return request.is_renew_ack and any((request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records))


async def _has_updated(session: ShareSession, sessions: ShareSessions, request: ShareFetchRequest) -> bool:
    """Change the partitions of the session as the request says; False if there is no room for them."""
    for topic in request.topics:
        for each in topic.partitions:
            if not sessions.add(session, (topic.topic_id, each.partition_index)):
                return False
            await pause()
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            sessions.forget(session, (forgotten.topic_id, index))
            await pause()
    return True
