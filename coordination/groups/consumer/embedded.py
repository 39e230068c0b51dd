"""Reads and writes the subscriptions and assignments of classic members, which a consumer group of the new protocol serves too.

They are bytes of the consumer protocol in JoinGroup and SyncGroup, and name topics instead of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from ottla.coordination.groups.consumer.assignors import Assignment
from ottla.coordination.groups.consumer.topics import Topics
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ottla.protocol.schema.wire import ProtocolError

LAST_VERSION: Final = 3
_VERSION = Struct(">h")


class Subscription(NamedTuple):
    """The subscription of a classic member."""

    topics: tuple[str, ...]
    """In order, each once."""
    rack_id: str | None
    held: Mapping[bytes, frozenset[int]]
    """The partitions that it has, by topic id."""


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment; later ones are read as the last that is known. Raises ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes where a version is expected")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol")
    return min(version, LAST_VERSION)


def read_subscription(data: bytes, topics: Topics) -> Subscription:
    """The subscription in the metadata of a member. Raises ProtocolError."""
    message, _ = ConsumerProtocolSubscription.decode(data, version_of(data), _VERSION.size)
    return Subscription(tuple(sorted(set(message.topics))), message.rack_id, _by_id(message.owned_partitions, topics))


def read_assignment(data: bytes, topics: Topics) -> Assignment:
    """The assignment of a member, by topic id. No bytes are no assignment. Raises ProtocolError."""
    if not data:
        return {}
    message, _ = ConsumerProtocolAssignment.decode(data, version_of(data), _VERSION.size)
    return _by_id(message.assigned_partitions, topics)


def user_data_of(assignment: bytes) -> bytes:
    """The data that the members' assignor has added to an assignment. Raises ProtocolError."""
    if not assignment:
        return b""
    message, _ = ConsumerProtocolAssignment.decode(assignment, version_of(assignment), _VERSION.size)
    return bytes(message.user_data or b"")


def _by_id(
    named: Iterable[ConsumerProtocolSubscriptionTopicPartition | ConsumerProtocolAssignmentTopicPartition], topics: Topics
) -> dict[bytes, frozenset[int]]:
    """Partitions of topics that exist."""
    found: dict[bytes, frozenset[int]] = {}
    for each in named:
        image = topics.get(each.topic)
        if image is not None and each.partitions:
            found[image.topic_id] = found.get(image.topic_id, frozenset()) | frozenset(each.partitions)
    return found


def assignment_bytes(assigned: Mapping[bytes, Iterable[int]], version: int, names: Mapping[bytes, str]) -> bytes:
    """The assignment as a classic member reads it, in the version of its subscription."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=names[topic], partitions=sorted(indexes))
            for topic, indexes in assigned.items()
            if topic in names
        ]
    )
    return _VERSION.pack(version) + message.encode(version)
