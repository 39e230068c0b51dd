"""Serves FindCoordinator (api 10), versions 0-6.

Transactional ids from 1, many keys at once from 4 (KIP-699), share groups from 6 (KIP-932).

The coordinator is the broker that leads the key's partition of the internal topic. A missing topic is created first. While the partition
has no leader, the answer is COORDINATOR_NOT_AVAILABLE, and the client retries. Share groups have no coordinator here.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.broker.request.context import RequestContext
from ottla.broker.request.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.request.turns import Steps
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIRST_VERSION_WITH_MANY_KEYS = 4
FIRST_VERSION_WITH_SHARE_GROUPS = 6


class CoordinatorType(IntEnum):
    """The kind of a key."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


TOPICS: Final[Mapping[int, str]] = {
    CoordinatorType.GROUP: GROUP_METADATA_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTION_STATE_TOPIC,
}
RESOURCES: Final[Mapping[int, ResourceType]] = {
    CoordinatorType.GROUP: ResourceType.GROUP,
    CoordinatorType.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}


class Found(NamedTuple):
    """A broker that clients can reach, or the reason why there is none."""

    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


def handle_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> Steps[FindCoordinatorResponse] | Coroutine[Any, Any, Steps[FindCoordinatorResponse]]:
    """Find the coordinator of each key. Waits only while an internal topic is created."""
    keys = request.coordinator_keys if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS else [request.key]
    if request.key_type not in CoordinatorType.__members__.values():
        return _response(keys, [Found(ErrorCode.INVALID_REQUEST)] * len(keys), context, ErrorCode.INVALID_REQUEST.message)
    topic = TOPICS.get(request.key_type)
    if topic is not None and topic not in context.broker.metadata.topics:
        return _create_topic(request.key_type, topic, keys, context)
    return _find_all(request.key_type, keys, context)


async def _create_topic(key_type: int, topic: str, keys: list[str], context: RequestContext) -> Steps[FindCoordinatorResponse]:
    """Create the internal topic for its first key. The topic may have leaders by then, or the client asks again."""
    for key in keys:
        await context.broker.turns.pause()
        if context.is_authorized(Operation.DESCRIBE, RESOURCES[key_type], key, log_if_denied=False):
            quota = context.connection.mutation_quota(is_strict=False)
            await context.broker.administration.auto_topics.create([topic], quota.take)
            break
    return _find_all(key_type, keys, context)


def _find_all(key_type: int, keys: list[str], context: RequestContext) -> Steps[FindCoordinatorResponse]:
    found = []
    for key in keys:
        found.append(_find(key_type, key, context))
        yield
    return (yield from _response(keys, found, context))


def _find(key_type: int, key: str, context: RequestContext) -> Found:
    if key_type == CoordinatorType.GROUP:
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, key):
            return Found(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return _leader(GROUP_METADATA_TOPIC, context.broker.coordinators.groups.partition_for(key), context)
    if key_type == CoordinatorType.TRANSACTION:
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return Found(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _leader(TRANSACTION_STATE_TOPIC, context.broker.coordinators.transactions.partition_for(key), context)
    if context.api_version < FIRST_VERSION_WITH_SHARE_GROUPS:
        return Found(ErrorCode.INVALID_REQUEST)
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return Found(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _leader(topic: str, partition: int, context: RequestContext) -> Found:
    cluster = context.broker.metadata
    leader_id, _ = cluster.leader_of(topic, partition)
    endpoint = cluster.endpoint(leader_id, context.client.listener_name)
    if endpoint is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(ErrorCode.NONE, leader_id, endpoint.host, endpoint.port)


def _response(keys: list[str], found: list[Found], context: RequestContext, message: str = "") -> Steps[FindCoordinatorResponse]:
    """`message` is for versions with many keys; a version with a single key always has the default text of the error."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        response = FindCoordinatorResponse(error_message="")
        for key, each in zip(keys, found, strict=True):
            response.coordinators.append(
                Coordinator(key=key, node_id=each.node_id, host=each.host, port=each.port, error_code=each.error, error_message=message)
            )
            yield
        return response
    error, node_id, host, port = found[0]
    return FindCoordinatorResponse(error_code=error, error_message=error.message, node_id=node_id, host=host, port=port)
