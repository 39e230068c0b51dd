"""Assigns partitions by Kafka's range assignor: every member gets consecutive partitions of each topic, the first
members one more."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import ProtocolError
from ottla.protocol.topic_partition import TopicPartition

PROTOCOL_TYPE = "consumer"
RANGE = "range"
_VERSION = struct.Struct(">h")
_WRITTEN_VERSION = 1


class Subscriber(NamedTuple):
    """A member of a group for the assignor; static members are ordered by their instance id."""

    member_id: str
    topics: Sequence[str]
    instance_id: str | None = None


def assign_ranges(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """The partitions of each member."""
    found: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))
    for topic in sorted({topic for member in members for topic in member.topics}):
        subscribers = [member for member in ordered if topic in member.topics]
        each, more = divmod(partition_counts.get(topic, 0), len(subscribers))
        start = 0
        for at, member in enumerate(subscribers):
            end = start + each + (at < more)
            found[member.member_id] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return found


def encode_subscription(topics: Sequence[str]) -> bytes:
    """The metadata of a member in its join request."""
    return _VERSION.pack(_WRITTEN_VERSION) + ConsumerProtocolSubscription(topics=list(topics)).encode(_WRITTEN_VERSION)


def decode_topics(metadata: bytes) -> list[str]:
    """The topics of a member's subscription; none when the bytes are not a subscription."""
    found = _decode(ConsumerProtocolSubscription, metadata)
    return found.topics if isinstance(found, ConsumerProtocolSubscription) else []


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """The assignment that the leader sends for a member."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    assigned = [ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return _VERSION.pack(_WRITTEN_VERSION) + ConsumerProtocolAssignment(assigned_partitions=assigned).encode(_WRITTEN_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions in an assignment; none when it is empty or malformed."""
    found = _decode(ConsumerProtocolAssignment, data)
    if not isinstance(found, ConsumerProtocolAssignment):
        return []
    return [TopicPartition(topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions]


def _decode(kind: type[Message], data: bytes) -> Message | None:
    """Decodes newer versions as the newest known one, which they only extend at the end."""
    if len(data) < _VERSION.size:
        return None
    try:
        return kind.decode(data, min(_VERSION.unpack_from(data)[0], kind.SCHEMA.versions.last), _VERSION.size)[0]
    except ProtocolError:
        return None
