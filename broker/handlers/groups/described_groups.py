"""Describes groups for the handlers of ConsumerGroupDescribe and ShareGroupDescribe: who may see them, and their topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.broker.security.authorizer import GROUP_CONFIG_OPERATIONS
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import consumer_group_describe, share_group_describe

Described = TypeVar("Described", consumer_group_describe.DescribedGroup, share_group_describe.DescribedGroup)

_UNSEEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


async def described_groups(
    group_ids: Sequence[str],
    context: RequestContext,
    refuse: Callable[[str, ErrorCode], Described],
    describe: Callable[[str], Awaitable[Described]],
    *,
    is_served: bool,
) -> list[Described]:
    """Describe each group; groups that the client may not describe come first, as in Apache Kafka."""
    refused = []
    described = []
    repeats = Repeats(context)
    for group_id in group_ids:
        if not is_served:
            refused.append(refuse(group_id, ErrorCode.UNSUPPORTED_VERSION))
        elif not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            refused.append(refuse(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        elif repeats.are_too_many(group_id):
            described.append(refuse(group_id, ErrorCode.INVALID_REQUEST))
        else:
            described.append(await describe(group_id))
        await pause()
    return refused + described


async def completed(
    described: Described,
    topics_of_members: Iterable[Iterable[str]],
    request: consumer_group_describe.ConsumerGroupDescribeRequest | share_group_describe.ShareGroupDescribeRequest,
    context: RequestContext,
) -> Described:
    """The description with the allowed operations, or an error for a client that may not see all topics of the members."""
    group_id = described.group_id
    if not await _sees_all(topics_of_members, context):
        return type(described)(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=_UNSEEN_TOPICS, group_id=group_id)
    if request.include_authorized_operations:
        described.authorized_operations = context.access.operations(ResourceType.GROUP, group_id, GROUP_CONFIG_OPERATIONS)
    return described


async def _sees_all(topics_of_members: Iterable[Iterable[str]], context: RequestContext) -> bool:
    """Whether the client may describe all topics of the members."""
    seen: set[str] = set()
    for names in topics_of_members:
        for name in names:
            if name in seen:
                continue
            if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name, log_if_denied=False):
                return False
            seen.add(name)
        await pause()
    return True
