"""Tells what the metadata store has of a topic, also one that no broker has told this one of."""

from collections.abc import Collection

from ottla.controller.errors import NoNode
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import TopicAssignment, decode_topic, topic_path
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.uuid import ZERO_UUID


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
