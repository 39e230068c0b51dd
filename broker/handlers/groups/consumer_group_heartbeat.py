"""Serves ConsumerGroupHeartbeat (api 68), versions 0-1.

From 1 on members choose their own id (KIP-1082), and may subscribe by a regular expression. Refused while the feature `group.version` is
not finalized, as by Apache Kafka 3.9.

The answer is sent when the changes that the heartbeat caused are on all in-sync replicas (KIP-848).
"""

from __future__ import annotations

from typing import Final

from ottla.broker.groups.consumer.assignors import Assignment as Assigned
from ottla.broker.groups.consumer.effects import Beat, BeatResult
from ottla.broker.handlers.delayed_answer import DelayedAnswer
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import RequestContext
from ottla.broker.security.acl_hosts import java_host
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from ottla.protocol.schema.message import Message

FIRST_VERSION_WITH_OWN_MEMBER_ID: Final = 1

MAX_TOPICS: Final = 20_000
"""Most names in a subscription. The group keeps them, and a record of `__consumer_offsets` holds them."""


async def handle_consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Message | Answer:
    """Join a group, stay in it, or leave it."""
    consumer = context.broker.coordinators.groups.consumer
    if not consumer.is_served:
        context.offend("asks for a group of the new protocol, which the cluster does not have: run `ottla features upgrade`")
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
    held: dict[bytes, set[int]] | None = None
    if request.topic_partitions is not None:
        held = {}
        for topic in request.topic_partitions:
            indexes = held.setdefault(topic.topic_id, set())
            for index in topic.partitions:
                indexes.add(index)
                await pause()
            await pause()
    answer = DelayedAnswer(context)
    beat = Beat(
        waiter=lambda result: answer.complete(_response(result)),
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else tuple(sorted(names)),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        held=held,
        client_id=context.client_id or "",
        client_host=f"/{java_host(context.client.client_host)}",
        may_describe=lambda topic: context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic, log_if_denied=False),
    )
    consumer.heartbeat(request.group_id, beat, requires_member_id=context.api_version >= FIRST_VERSION_WITH_OWN_MEMBER_ID)
    return answer.answer()


def _refused(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error)


def _response(result: BeatResult) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _assignment(assigned: Assigned) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in assigned.items()
        ]
    )
