"""Reads what the heartbeats of consumer groups and share groups have in common: rights and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.subscriptions import MAX_TOPICS
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode


def refusal_of(group_id: str, context: RequestContext, *, is_served: bool) -> ErrorCode:
    """Why the sender may not be a member of the group; NONE if it may. `is_served`: whether the cluster has groups of the type."""
    if not is_served:
        context.offend("asks for a group of the new protocol, which the cluster does not have: run `ottla features upgrade`")
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def subscription_of(names: Sequence[str] | None, context: RequestContext) -> tuple[ErrorCode, tuple[str, ...] | None]:
    """(error, topics): those of a subscription, in order, each once; None if the heartbeat names none."""
    if names is None:
        return ErrorCode.NONE, None
    topics = set()
    for name in names:
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        topics.add(name)
        await pause()
    if len(topics) > MAX_TOPICS:
        return ErrorCode.INVALID_REQUEST, None
    return ErrorCode.NONE, tuple(sorted(topics))


def host_of(context: RequestContext) -> str:
    """The host of a member, as Apache Kafka shows it."""
    return f"/{context.client.java_host}"
