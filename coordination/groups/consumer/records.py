"""Encodes and decodes the records of consumer groups in `__consumer_offsets`, in the bytes of Apache Kafka 4.4.

The version of a key gives the kind of the record. A record without a value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.coordination.groups.consumer.assignors import Assignment
from ottla.coordination.groups.consumer.members import ClassicPart, Member, MemberState, Owned
from ottla.coordination.groups.offset_records import version_of
from ottla.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import ProtocolError

VALUE_VERSION: Final = 0

_VERSION = Struct(">h")


class Resolved(NamedTuple):
    """The topics that a regular expression matched, among those that its subscriber may see; the image of the cluster, and the time."""

    topics: frozenset[str] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


class GroupEpoch(NamedTuple):
    """Key version 3: the epoch of the group. None removes the group."""

    epoch: int | None
    metadata_hash: int = 0


class TopicsOfOldRelease(NamedTuple):
    """Key version 4: the topics of the group, which releases before 4.1 wrote. Only a tombstone of it is written."""

    is_present: bool


class MemberMetadata(NamedTuple):
    """Key version 5: what a member asked for. None removes the member."""

    member_id: str
    member: Member | None


class TargetEpoch(NamedTuple):
    """Key version 6: the epoch of the target."""

    epoch: int | None
    computed_ms: int = 0


class TargetMember(NamedTuple):
    """Key version 7: the part of a member in the target."""

    member_id: str
    target: Assignment | None
    pair: Pair | None = None
    """Its key and value, if a thread has encoded them."""


class CurrentAssignment(NamedTuple):
    """Key version 8: how far a member has come, and what it has."""

    member_id: str
    member: Member | None


class ResolvedRegex(NamedTuple):
    """Key version 16: the topics that a regular expression of the group matches."""

    regex: str
    resolved: Resolved | None


class StatePartitions(NamedTuple):
    """Key version 15, of share groups: the partitions whose state at the share coordinator is initialized, and those for which that was
    begun. By topic id, the name of the topic and the partitions."""

    initializing: Mapping[bytes, tuple[str, frozenset[int]]]
    initialized: Mapping[bytes, tuple[str, frozenset[int]]]
    is_gone: bool = False


Record: TypeAlias = (
    GroupEpoch | TopicsOfOldRelease | MemberMetadata | TargetEpoch | TargetMember | CurrentAssignment | ResolvedRegex | StatePartitions
)
Pair: TypeAlias = tuple[bytes, bytes | None]


def key_of(group_id: str, record: Record) -> bytes:
    """The key of a record."""
    key: Message
    if isinstance(record, CurrentAssignment):
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=record.member_id)
    elif isinstance(record, TargetMember):
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=record.member_id)
    elif isinstance(record, MemberMetadata):
        key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=record.member_id)
    elif isinstance(record, GroupEpoch):
        key = ConsumerGroupMetadataKey(group_id=group_id)
    elif isinstance(record, TargetEpoch):
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    elif isinstance(record, ResolvedRegex):
        key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=record.regex)
    else:
        key = ConsumerGroupPartitionMetadataKey(group_id=group_id)
    version = key.SCHEMA.versions.first
    return _VERSION.pack(version) + key.encode(version)


def pairs_of(group_id: str, records: Iterable[Record]) -> list[Pair]:
    """The keys and values of records. 10 µs each, unless a thread has encoded them."""
    return [encoded(record) or (key_of(group_id, record), _value_of(record)) for record in records]


def encoded(record: Record) -> Pair | None:
    """The key and the value of a record that a thread has encoded."""
    return record.pair if isinstance(record, TargetMember) else None


def _value_of(record: Record) -> bytes | None:
    value: Message
    if isinstance(record, CurrentAssignment):
        member = record.member
        if member is None:
            return None
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_owned(member.assigned),
            partitions_pending_revocation=_owned(member.revoking),
        )
    elif isinstance(record, TargetMember):
        if record.target is None:
            return None
        value = ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TopicPartition(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in record.target.items()]
        )
    elif isinstance(record, MemberMetadata):
        if record.member is None:
            return None
        value = _metadata(record.member)
    elif isinstance(record, GroupEpoch):
        if record.epoch is None:
            return None
        value = ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
    elif isinstance(record, TargetEpoch):
        if record.epoch is None:
            return None
        value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=record.epoch, assignment_timestamp=record.computed_ms)
    elif isinstance(record, ResolvedRegex) and record.resolved is not None:
        topics, version, timestamp_ms = record.resolved
        value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms)
    else:
        return None
    return _VERSION.pack(VALUE_VERSION) + value.encode(VALUE_VERSION)


def _owned(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic, partitions in owned.items()
    ]


def _metadata(member: Member) -> ConsumerGroupMemberMetadataValue:
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols],
        )
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )


def read(version: int, key: bytes, value: bytes) -> tuple[str, Record]:
    """(group id, record) of a key of this version and its value. Raises ProtocolError."""
    key_type, value_type, make = _KINDS[version]
    named, _ = key_type.decode(key, version, _VERSION.size)
    value_version = version_of(value)
    if value_version != VALUE_VERSION:
        raise ProtocolError(f"version {value_version} of {value_type.__name__} is not known")
    found, _ = value_type.decode(value, value_version, _VERSION.size)
    return named.group_id, make(named, found)


def _read_metadata(key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue) -> MemberMetadata:
    classic = None
    if value.classic_member_metadata is not None:
        protocols = tuple([(each.name, each.metadata) for each in value.classic_member_metadata.supported_protocols])
        classic = ClassicPart(value.classic_member_metadata.session_timeout_ms, protocols)
    return MemberMetadata(
        key.member_id,
        Member(
            key.member_id,
            value.instance_id,
            value.rack_id,
            value.client_id,
            value.client_host,
            tuple(value.subscribed_topic_names),
            value.subscribed_topic_regex,
            value.rebalance_timeout_ms,
            value.server_assignor,
            classic,
        ),
    )


def _read_target(key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue) -> TargetMember:
    return TargetMember(key.member_id, {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions if each.partitions})


def _read_current(key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    member = Member(
        key.member_id,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_read_owned(value.assigned_partitions, value.member_epoch),
        revoking=_read_owned(value.partitions_pending_revocation, value.member_epoch),
    )
    return CurrentAssignment(key.member_id, member)


def _read_owned(topics: Iterable[TopicPartitions], epoch: int) -> Owned:
    """The partitions, with the epoch of the member where the log has no epoch of their own: releases before 4.4 wrote none."""
    owned: dict[bytes, dict[int, int]] = {}
    for each in topics:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [epoch] * len(each.partitions)
        if each.partitions:
            owned[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return owned


_KINDS: Final[Mapping[int, tuple[Any, Any, Callable[[Any, Any], Record]]]] = {
    key.SCHEMA.versions.first: (key, value, make)
    for key, value, make in (
        (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, lambda key, value: GroupEpoch(value.epoch, value.metadata_hash)),
        (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, lambda key, value: TopicsOfOldRelease(True)),
        (
            ConsumerGroupRegularExpressionKey,
            ConsumerGroupRegularExpressionValue,
            lambda key, value: ResolvedRegex(key.regular_expression, Resolved(frozenset(value.topics), value.version, value.timestamp)),
        ),
        (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, _read_metadata),
        (
            ConsumerGroupTargetAssignmentMetadataKey,
            ConsumerGroupTargetAssignmentMetadataValue,
            lambda key, value: TargetEpoch(value.assignment_epoch, value.assignment_timestamp),
        ),
        (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, _read_target),
        (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, _read_current),
    )
}
"""By the version of the key: key, value, and the record that they make. A log that is loaded applies the kinds in this order."""

KEYS_IN_ORDER: Final = tuple(_KINDS)
