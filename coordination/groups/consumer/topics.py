"""Looks up the topics of the cluster for consumer groups: ids, numbers of partitions, and a hash that shows changes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from struct import Struct
from typing import TypeAlias

from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.ports.cluster import TopicImage

Topics: TypeAlias = Mapping[str, TopicImage]
"""The topics of the cluster by name. The mapping is replaced with every change, so a thread can read it."""

NO_HASH = 0
_ENTRY = Struct(">16siI").pack
_HASH = Struct(">q")


def partition_count(image: TopicImage) -> int:
    """The number of partitions, with those that have had no leader yet."""
    return max(image.partitions) + 1


def ids_of(names: Iterable[str], topics: Topics) -> frozenset[bytes]:
    """The ids of the topics that exist. A topic without an id cannot be assigned."""
    found = [topics[name].topic_id for name in names if name in topics]
    return frozenset([topic_id for topic_id in found if topic_id != ZERO_UUID])


def counts_of(names: Iterable[str], topics: Topics) -> dict[bytes, int]:
    """The numbers of partitions by topic id."""
    return {topics[name].topic_id: partition_count(topics[name]) for name in names if name in topics and topics[name].topic_id != ZERO_UUID}


def hash_of(names: Iterable[str], topics: Topics) -> int:
    """A hash that changes when one of these topics appears, vanishes, is created again, or grows. NO_HASH if none of them exists."""
    parts = []
    for name in sorted(names):
        image = topics.get(name)
        if image is not None:
            parts.append(_ENTRY(image.topic_id, partition_count(image), len(name)) + name.encode())
    if not parts:
        return NO_HASH
    value: int = _HASH.unpack(blake2b(b"".join(parts), digest_size=_HASH.size).digest())[0]
    return value or 1
