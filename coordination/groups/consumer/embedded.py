"""Reads and writes the subscriptions and assignments of classic members, which a consumer group of the new protocol serves too.

They are bytes of the consumer protocol in JoinGroup and SyncGroup, and name topics instead of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from ottla.coordination.groups.consumer.assignors import Assignment
from ottla.coordination.groups.consumer.topics import Topics
from ottla.coordination.groups.subscriptions import MAX_TOPICS, head_of
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ottla.protocol.schema.wire import ProtocolError

LAST_VERSION: Final = 3
MAX_BYTES: Final = 1024 * 1024
"""Most bytes of a subscription or an assignment: the largest record of the group by default. An event reads it in one turn of the loop."""
MOST_ELEMENTS: Final = 200_000
"""Most topics and partitions in all subscriptions and assignments of a group that is converted. A topic takes a microsecond."""
_VERSION = Struct(">h")
_COUNT = Struct(">i")


class Subscription(NamedTuple):
    """The subscription of a classic member."""

    topics: tuple[str, ...]
    """In order, each once."""
    rack_id: str | None
    held: Mapping[bytes, frozenset[int]]
    """The partitions that it has, by topic id."""
    elements: int
    """How many topics and partitions were read."""


class Assigned(NamedTuple):
    """The assignment of a classic member."""

    partitions: Assignment
    """By topic id."""
    user_data: bytes
    """The data that the members' assignor has added."""
    elements: int
    """How many topics and partitions were read."""


_Partitions: TypeAlias = Sequence[ConsumerProtocolSubscriptionTopicPartition] | Sequence[ConsumerProtocolAssignmentTopicPartition]


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment; later ones are read as the last that is known. Raises ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes where a version is expected")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol")
    return min(version, LAST_VERSION)


def _check_size(data: bytes) -> None:
    """Raises ProtocolError for data that would take too long to read."""
    if len(data) > MAX_BYTES:
        raise ProtocolError(f"{len(data)} bytes of the consumer protocol, which are more than {MAX_BYTES}")
    _check_count(head_of(data)[1])


def _check_count(topics: int) -> None:
    if topics > MAX_TOPICS:
        raise ProtocolError(f"{topics} topics, which are more than {MAX_TOPICS}")


def read_subscription(data: bytes, topics: Topics) -> Subscription:
    """The subscription in the metadata of a member. Raises ProtocolError."""
    _check_size(data)
    version = version_of(data)
    if version > 0:
        _, at = ConsumerProtocolSubscription.decode(data, 0, _VERSION.size)  # the topics; those of owned partitions follow
        if len(data) >= at + _COUNT.size:
            _check_count(_COUNT.unpack_from(data, at)[0])
    message, _ = ConsumerProtocolSubscription.decode(data, version, _VERSION.size)
    held = message.owned_partitions
    elements = len(message.topics) + _elements_of(held)
    return Subscription(tuple(sorted(set(message.topics))), message.rack_id, _by_id(held, topics), elements)


def read_assignment(data: bytes, topics: Topics) -> Assigned:
    """The assignment of a member. No bytes are no assignment. Raises ProtocolError."""
    if not data:
        return Assigned({}, b"", 0)
    _check_size(data)
    message, _ = ConsumerProtocolAssignment.decode(data, version_of(data), _VERSION.size)
    named = message.assigned_partitions
    return Assigned(_by_id(named, topics), bytes(message.user_data or b""), _elements_of(named))


def _elements_of(named: _Partitions) -> int:
    return sum([1 + len(each.partitions) for each in named])


def _by_id(named: _Partitions, topics: Topics) -> dict[bytes, frozenset[int]]:
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
