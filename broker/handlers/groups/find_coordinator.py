"""Serves FindCoordinator (api 10), versions 0-6.

Transactional ids from 1, many keys at once from 4 (KIP-699), share groups from 6 (KIP-932).

The coordinator is the broker that leads the key's partition of the internal topic. A missing topic is created first. While the partition
has no leader, the answer is COORDINATOR_NOT_AVAILABLE, and the client retries. The coordinator of a share partition is for brokers, and
there is none before the cluster has finalized the feature `share.version`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.broker.request.context import RequestContext
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SHARE_VERSION
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
    CoordinatorType.SHARE: SHARE_STATE_TOPIC,
}


REFUSALS: Final[Mapping[int, ErrorCode]] = {
    CoordinatorType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CoordinatorType.TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    CoordinatorType.SHARE: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Found(NamedTuple):
    """A broker that clients can reach, or the reason why there is none."""

    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


async def handle_find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Find the coordinator of each key. Waits only while an internal topic is created."""
    keys = request.coordinator_keys if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS else [request.key]
    if request.key_type not in CoordinatorType.__members__.values():
        return await _response(keys, [Found(ErrorCode.INVALID_REQUEST)] * len(keys), context, ErrorCode.INVALID_REQUEST.message)
    topic = TOPICS[request.key_type]
    if topic not in context.broker.metadata.topics and (request.key_type != CoordinatorType.SHARE or _has_shares(context)):
        return await _create_topic(request.key_type, topic, keys, context)
    return await _find_all(request.key_type, keys, context)


async def _create_topic(key_type: int, topic: str, keys: list[str], context: RequestContext) -> FindCoordinatorResponse:
    """Create the internal topic for its first key. The topic may have leaders by then, or the client asks again."""
    for key in keys:
        await pause()
        if _may_find(key_type, key, context, log_if_denied=False):
            quota = context.connection.mutation_quota(is_strict=False)
            await context.broker.administration.auto_topics.create([topic], quota.take)
            break
    return await _find_all(key_type, keys, context)


async def _find_all(key_type: int, keys: list[str], context: RequestContext) -> FindCoordinatorResponse:
    found = []
    for key in keys:
        found.append(_find(key_type, key, context))
        await pause()
    return await _response(keys, found, context)


def _may_find(key_type: int, key: str, context: RequestContext, *, log_if_denied: bool = True) -> bool:
    if key_type == CoordinatorType.GROUP:
        return context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, key, log_if_denied=log_if_denied)
    if key_type == CoordinatorType.TRANSACTION:
        return context.is_authorized(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key, log_if_denied=log_if_denied)
    return context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, log_if_denied=log_if_denied)


def _has_shares(context: RequestContext) -> bool:
    return context.api_version >= FIRST_VERSION_WITH_SHARE_GROUPS and context.broker.cluster.features.level(SHARE_VERSION) > 0


def _find(key_type: int, key: str, context: RequestContext) -> Found:
    if key_type == CoordinatorType.SHARE and context.api_version < FIRST_VERSION_WITH_SHARE_GROUPS:
        return Found(ErrorCode.INVALID_REQUEST)
    if not _may_find(key_type, key, context):
        return Found(REFUSALS[key_type])
    coordinators = context.broker.coordinators
    if key_type == CoordinatorType.GROUP:
        return _leader(GROUP_METADATA_TOPIC, coordinators.groups.partition_for(key), context)
    if key_type == CoordinatorType.TRANSACTION:
        return _leader(TRANSACTION_STATE_TOPIC, coordinators.transactions.partition_for(key), context)
    if not _has_shares(context):
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        return _leader(SHARE_STATE_TOPIC, coordinators.shares.partition_for(SharePartitionKey.parse(key)), context)
    except ValueError:
        return Found(ErrorCode.INVALID_REQUEST)


def _leader(topic: str, partition: int, context: RequestContext) -> Found:
    cluster = context.broker.metadata
    leader_id, _ = cluster.leader_of(topic, partition)
    endpoint = cluster.endpoint(leader_id, context.client.listener_name)
    if endpoint is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(ErrorCode.NONE, leader_id, endpoint.host, endpoint.port)


async def _response(keys: list[str], found: list[Found], context: RequestContext, message: str = "") -> FindCoordinatorResponse:
    """`message` is for versions with many keys; a version with a single key always has the default text of the error."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        response = FindCoordinatorResponse(error_message="")
        for key, each in zip(keys, found, strict=True):
            response.coordinators.append(
                Coordinator(key=key, node_id=each.node_id, host=each.host, port=each.port, error_code=each.error, error_message=message)
            )
            await pause()
        return response
    error, node_id, host, port = found[0]
    return FindCoordinatorResponse(error_code=error, error_message=error.message, node_id=node_id, host=host, port=port)
