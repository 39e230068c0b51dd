"""Handles ShareGroupHeartbeat (api 76), version 1: a member joins, stays in or leaves a share group (KIP-932).

The answer is sent when the changes that the heartbeat caused are on all in-sync replicas.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.groups.consumer.effects import Beat, BeatResult
from ottla.broker.handlers.delayed_answer import DelayedAnswer
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.broker.security.acl_hosts import java_host
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.schema.message import Message

MAX_TOPICS: Final = 20_000
"""Most names in a subscription. The group keeps them, and a record of `__consumer_offsets` holds them."""


async def handle_share_group_heartbeat(request: ShareGroupHeartbeatRequest, context: RequestContext) -> Message | Answer:
    """Hand the heartbeat to the group."""
    share = context.broker.coordinators.groups.share
    if not share.is_served:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = None
    if request.subscribed_topic_names is not None:
        names = set()
        for name in request.subscribed_topic_names:
            if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name):
                return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            names.add(name)
            await pause()
        if len(names) > MAX_TOPICS:
            return _refused(ErrorCode.INVALID_REQUEST)
    answer = DelayedAnswer(context)
    beat = Beat(
        waiter=lambda result: answer.complete(_response(result)),
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=None if names is None else tuple(sorted(names)),
        client_id=context.client_id or "",
        client_host=f"/{java_host(context.client.client_host)}",
    )
    share.heartbeat(request.group_id, beat)
    return answer.answer()


def _refused(error: ErrorCode) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error)


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
