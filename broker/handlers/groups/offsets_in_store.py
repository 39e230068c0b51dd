"""Reads and writes the offsets of version 0 of OffsetCommit and OffsetFetch, which are znodes.

The path is `/consumers/GROUP/offsets/TOPIC/PARTITION`, and the content is the number as text. Consumers of Kafka 0.8 kept their offsets
there. No other znodes of these consumers are read. A group whose name no single node can have is refused: each slash in its name would
make a node, and these nodes are never deleted.
"""

import logging

from ottla.broker.request.context import RequestContext
from ottla.broker.request.services import Services
from ottla.controller.errors import NodeExists, NoNode, StoreError
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import can_name_a_node
from ottla.coordination.error_map import error_code
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

NO_OFFSET = -1


async def commit_to_store(group_id: str, partition: TopicPartition, offset: int, services: Services) -> ErrorCode:
    """Write one offset. An impossible name of a group is an unknown error."""
    if not can_name_a_node(group_id):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    try:
        await _set_or_create(services.administration.store, _path(group_id, partition), str(offset).encode())
    except (StoreError, ValueError) as error:
        logger.warning("%s: the offset of group %s cannot be stored: %s", partition, group_id, error)
        return error_code(error)
    return ErrorCode.NONE


async def fetch_from_store(group_id: str, partition: TopicPartition, context: RequestContext) -> tuple[ErrorCode, int]:
    """Read one offset. A missing offset is an unknown partition, an impossible name of a group an unknown error."""
    if context.broker.metadata.partition(*partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_OFFSET
    if not can_name_a_node(group_id):
        return ErrorCode.UNKNOWN_SERVER_ERROR, NO_OFFSET
    try:
        data, _ = await context.broker.administration.store.get(_path(group_id, partition))
        return ErrorCode.NONE, int(data or b"")
    except NoNode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_OFFSET
    except (StoreError, ValueError) as error:
        logger.warning("%s: the offset of group %s cannot be read: %s", partition, group_id, error)
        return error_code(error), NO_OFFSET


def _path(group_id: str, partition: TopicPartition) -> str:
    topic, index = partition
    return f"/consumers/{group_id}/offsets/{topic}/{index}"


async def _set_or_create(store: MetadataStore, path: str, data: bytes) -> None:
    try:
        await store.set(path, data)
        return
    except NoNode:
        pass
    names = path.split("/")
    for depth in range(2, len(names)):
        try:
            await store.create("/".join(names[:depth]), None)
        except NodeExists:
            continue
    try:
        await store.create(path, data)
    except NodeExists:
        await store.set(path, data)
