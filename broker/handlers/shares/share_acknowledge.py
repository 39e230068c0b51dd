"""Handles ShareAcknowledge (api 79), versions 1-2: a member acknowledges records that it has acquired (KIP-932).

Version 2 can renew locks (KIP-1222). The answer is sent when the coordinator of the state has stored what was acknowledged. The final epoch
ends the member's session.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.handlers.data.leader_hints import current_leader, leader_nodes
from ottla.broker.handlers.shares.share_requests import Acknowledging, acknowledged_in
from ottla.broker.network.request_channel import Answer, Pending
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, SessionKey, ShareSession
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.protocol.schema.message import Message


async def handle_share_acknowledge(request: ShareAcknowledgeRequest, context: RequestContext) -> Message | Answer:
    """Acknowledge in each partition, then answer."""
    group_id, member_id = request.group_id, request.member_id
    if group_id is None or not member_id:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, group_id):
        return ShareAcknowledgeResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.share_session_epoch == INITIAL_EPOCH:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    acknowledged = await acknowledged_in(request.topics)
    shares = context.broker.coordinators.share_leader
    error, session = shares.sessions.use(SessionKey(group_id, member_id), request.share_session_epoch, context.client)
    if session is None:
        return ShareAcknowledgeResponse(error_code=error)
    answer = DelayedAnswer(context)
    is_final = request.share_session_epoch == FINAL_EPOCH
    acknowledging = Acknowledging(context, partial(_on_acknowledged, answer, context, session, is_final))
    await acknowledging.acknowledge(acknowledged, group_id, member_id, may_renew=request.is_renew_ack)
    response = answer.answer()
    assert isinstance(response, Message | Pending)  # it is complete, or will be
    return response


def _on_acknowledged(
    answer: DelayedAnswer, context: RequestContext, session: ShareSession, is_final: bool, errors: dict[Place, ErrorCode]
) -> None:
    if is_final:
        context.broker.coordinators.share_leader.sessions.end(session)
    answer.complete(_response(context, session.key.group_id, errors))


def _response(context: RequestContext, group_id: str, errors: dict[Place, ErrorCode]) -> ShareAcknowledgeResponse:
    lock_ms = context.broker.coordinators.share_leader.settings.rules_of(group_id).lock_ms
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms)
    replicas = context.broker.data.replica_manager
    by_topic: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for (topic_id, index), error in errors.items():
        topic = by_topic.get(topic_id)
        if topic is None:
            topic = by_topic[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
            response.responses.append(topic)
        each = PartitionData(partition_index=index, error_code=error)
        if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader_id, epoch = current_leader(replicas, context.broker.metadata.names_by_id.get(topic_id, ""), index)
            each.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
            leaders.add(leader_id)
        topic.partitions.append(each)
    response.node_endpoints = [
        NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
        for node, host, port, rack in leader_nodes(replicas, leaders, context.client.listener_name)
    ]
    return response
