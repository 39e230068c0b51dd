"""Serves ConsumerGroupHeartbeat (api 68), versions 0-1.

From 1 on members choose their own id (KIP-1082), and may subscribe by a regular expression. Refused while the feature `group.version` is
not finalized, as by Apache Kafka 3.9.

The answer is sent when the changes that the heartbeat caused are on all in-sync replicas (KIP-848).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.handlers.groups.member_heartbeat import host_of, refusal_of, subscription_of
from ottla.broker.network.request_channel import Answer
from ottla.broker.quotas.quota_type import REQUEST
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.broker.security.client import Client
from ottla.coordination.groups.consumer.assignors import Assignment as Assigned
from ottla.coordination.groups.consumer.coordinator import ConsumerGroups
from ottla.coordination.groups.consumer.effects import Beat, BeatResult
from ottla.coordination.groups.consumer.reconciliation import Held
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.consumer_heartbeat import PlainHeartbeat, plain_answer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from ottla.protocol.schema.message import Message

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.request.services import Services

FIRST_VERSION_WITH_OWN_MEMBER_ID: Final = 1
READ: Final = int(Operation.READ)
GROUP: Final = int(ResourceType.GROUP)
ERRORS: Final = int(ApiKey.CONSUMER_GROUP_HEARTBEAT) << 16
"""The API key in the keys of `Services.error_counts`."""


def handle_consumer_group_heartbeat_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> bytes | None:
    """Answer a heartbeat without news; None for any other, which is to be decoded.

    It takes a third of the time that a decoded one takes (`python -m benchmarks.paths.heartbeats`).
    """
    beat = PlainHeartbeat(frame, offset, version)
    if not beat.is_plain:
        return None
    member, instance = beat.member_id, beat.instance_id
    group_id, member_id, instance_id = beat.group_id.decode(), member.decode(), None if instance is None else instance.decode()
    client: Client = connection.client
    consumer: ConsumerGroups = services.coordinators.groups.consumer
    group = consumer.without_news(group_id, member_id, beat.epoch, instance_id, client.client_id or "", "/" + client.java_host)
    if group is None:
        return None
    counts: dict[int, int] = services.error_counts
    if not connection.access.may(READ, GROUP, group_id):
        error = ERRORS | int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        counts[error] = counts.get(error, 0) + 1
        return plain_answer(correlation_id, connection.throttle(REQUEST, 0), error & 0xFFFF, None, 0, 0)
    interval_ms = consumer.renew(group, member_id)
    counts[ERRORS] = counts.get(ERRORS, 0) + 1
    return plain_answer(correlation_id, connection.throttle(REQUEST, 0), 0, member, beat.epoch, interval_ms)


def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Message | Answer | Coroutine[Any, Any, Message | Answer]:
    """Join a group, stay in it, or leave it."""
    refusal = refusal_of(request.group_id, context, is_served=context.broker.coordinators.groups.consumer.is_served)
    if refusal:
        return _refused(refusal)
    if request.subscribed_topic_names is None and request.topic_partitions is None:
        return _hand_over(request, None, None, context)  # nothing of it needs a pause
    return _read(request, context)


async def _read(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Message | Answer:
    """A heartbeat with topics or partitions."""
    error, topics = await subscription_of(request.subscribed_topic_names, context)
    if error:
        return _refused(error)
    held: dict[bytes, set[int]] | None = None
    if request.topic_partitions is not None:
        held = {}
        for topic in request.topic_partitions:
            indexes = held.setdefault(topic.topic_id, set())
            for index in topic.partitions:
                indexes.add(index)
                await pause()
            await pause()
    return _hand_over(request, topics, held, context)


def _hand_over(
    request: ConsumerGroupHeartbeatRequest, topics: tuple[str, ...] | None, held: Held | None, context: RequestContext
) -> Message | Answer:
    """Hand the heartbeat to the group."""
    answer = DelayedAnswer(context)
    beat = Beat(
        lambda result: answer.complete(_response(result)),
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        topics,
        request.subscribed_topic_regex,
        request.server_assignor,
        held,
        context.client_id or "",
        host_of(context),
        lambda topic: context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic, log_if_denied=False),
    )
    consumer = context.broker.coordinators.groups.consumer
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
