"""Tells what the metadata store has of a topic, also one that no broker has told this one of.

The parent node of a topic's partitions is empty. That of an internal topic to which partitions were added has the former number of them:
that number still decides which partition has a group or a transactional id. Apache Kafka does not read the node, and counts them all.
"""

from collections.abc import Collection
from typing import NamedTuple

from ottla.controller.errors import NoNode
from ottla.controller.store.metadata_store import Create, Get, MetadataStore, SetData, Write, data_and_stat
from ottla.controller.znodes.layout import TopicAssignment, decode_topic, partitions_path, topic_path
from ottla.controller.znodes.znode_json import MalformedZNode, decode_object, encode_json
from ottla.protocol.uuid import ZERO_UUID

COORDINATING = "coordinating"


class StoredCount(NamedTuple):
    """The partitions of an internal topic that hold states: all of them, unless some were added (`is_fixed`)."""

    partitions: int
    is_fixed: bool = False


async def stored_count(store: MetadataStore, topic: str) -> StoredCount:
    """The partitions that hold states; none of a topic that does not exist. Raises StoreError, MalformedZNode."""
    outcomes = await store.pipeline([Get(topic_path(topic)), Get(partitions_path(topic))])
    if isinstance(outcomes[0], NoNode):
        return StoredCount(0)
    partitions = decode_topic(topic_path(topic), data_and_stat(outcomes[0])[0]).partitions
    fixed = 0 if isinstance(outcomes[1], NoNode) else _coordinating(topic, data_and_stat(outcomes[1])[0])
    return StoredCount(fixed or len(partitions), bool(fixed))


async def fix_count(store: MetadataStore, topic: str, partitions: int) -> list[Write]:
    """The writes after which this number of partitions holds states, whatever is added; none if the number is fixed already."""
    path = partitions_path(topic)
    data = encode_json({"version": 1, COORDINATING: partitions})
    try:
        known, stat = await store.get(path)
    except NoNode:
        return [Create(path, data)]
    return [] if _coordinating(topic, known) else [SetData(path, data, stat.version)]


def _coordinating(topic: str, data: bytes | None) -> int:
    if not data:
        return 0
    path = partitions_path(topic)
    found = decode_object(path, data).get(COORDINATING)
    if type(found) is not int or found < 1:
        raise MalformedZNode(path, f"{COORDINATING} is not a number of partitions")
    return found


async def stored_partitions(store: MetadataStore, topic: str) -> Collection[int]:
    """The partitions that a topic has; none of a topic that does not exist. Raises StoreError, MalformedZNode."""
    found = await _assignment(store, topic)
    return () if found is None else found.partitions.keys()


async def stored_topic_id(store: MetadataStore, topic: str) -> bytes | None:
    """The id of a topic, zeros if its znode does not tell it; None for a topic that does not exist. Raises StoreError."""
    try:
        found = await _assignment(store, topic)
    except MalformedZNode:
        return ZERO_UUID
    return None if found is None else found.topic_id or ZERO_UUID


async def _assignment(store: MetadataStore, topic: str) -> TopicAssignment | None:
    path = topic_path(topic)
    try:
        data, _ = await store.get(path)
    except NoNode:
        return None
    return decode_topic(path, data)
