"""Handles ShareGroupHeartbeat (api 76), version 1: a member joins, stays in or leaves a share group (KIP-932).

The answer is sent when the changes that the heartbeat caused are on all in-sync replicas.
"""

from __future__ import annotations

from ottla.broker.handlers.groups.member_heartbeat import host_of, refusal_of, subscription_of
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.groups.consumer.effects import Beat, BeatResult
from ottla.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.schema.message import Message


async def handle_share_group_heartbeat(request: ShareGroupHeartbeatRequest, context: RequestContext) -> Message | Answer:
    """Hand the heartbeat to the group."""
    share = context.broker.coordinators.groups.share
    error, topics = refusal_of(request.group_id, context, is_served=share.is_served), None
    if not error:
        error, topics = await subscription_of(request.subscribed_topic_names, context)
    if error:
        return ShareGroupHeartbeatResponse(error_code=error)
    answer = DelayedAnswer(context)
    beat = Beat(
        waiter=lambda result: answer.complete(_response(result)),
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=topics,
        client_id=context.client_id or "",
        client_host=host_of(context),
    )
    share.heartbeat(request.group_id, beat)
    return answer.answer()


def _response(result: BeatResult) -> ShareGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            topic_partitions=[TopicPartitions(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in result.assignment.items()]
        )
    return ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
