"""Encodes and decodes the records of share groups in `__consumer_offsets`, in the bytes of Apache Kafka 4.4.

The records are those of consumer groups under keys of their own, and one with the partitions whose state is initialized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final

from ottla.coordination.groups.consumer.members import Member, MemberState
from ottla.coordination.groups.consumer.records import (
    VALUE_VERSION,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Pair,
    Record,
    StatePartitions,
    TargetEpoch,
    TargetMember,
    encoded,
)
from ottla.coordination.groups.offset_records import version_of
from ottla.protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import ProtocolError

_VERSION = Struct(">h")


def pairs_of(group_id: str, records: Iterable[Record]) -> list[Pair]:
    """The keys and values of records."""
    return [encoded(record) or (_key_of(group_id, record), _value_of(record)) for record in records]


def _key_of(group_id: str, record: Record) -> bytes:
    key: Message
    if isinstance(record, CurrentAssignment):
        key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=record.member_id)
    elif isinstance(record, TargetMember):
        key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=record.member_id)
    elif isinstance(record, MemberMetadata):
        key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=record.member_id)
    elif isinstance(record, GroupEpoch):
        key = ShareGroupMetadataKey(group_id=group_id)
    elif isinstance(record, TargetEpoch):
        key = ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    else:
        assert isinstance(record, StatePartitions)  # share groups have no regular expressions
        key = ShareGroupStatePartitionMetadataKey(group_id=group_id)
    version = key.SCHEMA.versions.first
    return _VERSION.pack(version) + key.encode(version)


def _value_of(record: Record) -> bytes | None:
    value = _message_of(record)
    return None if value is None else _VERSION.pack(VALUE_VERSION) + value.encode(VALUE_VERSION)


def _message_of(record: Record) -> Message | None:
    if isinstance(record, CurrentAssignment) and record.member is not None:
        member = record.member
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=[TopicPartitions(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in member.assigned.items()],
        )
    if isinstance(record, TargetMember) and record.target is not None:
        return ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[TopicPartition(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in record.target.items()]
        )
    if isinstance(record, MemberMetadata) and record.member is not None:
        member = record.member
        return ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
        )
    if isinstance(record, GroupEpoch) and record.epoch is not None:
        return ShareGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
    if isinstance(record, TargetEpoch) and record.epoch is not None:
        return ShareGroupTargetAssignmentMetadataValue(assignment_epoch=record.epoch, assignment_timestamp=record.computed_ms)
    if isinstance(record, StatePartitions) and not record.is_gone:
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(record.initializing), initialized_topics=_infos(record.initialized)
        )
    return None


def _infos(partitions: Mapping[bytes, tuple[str, frozenset[int]]]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic, topic_name=name, partitions=sorted(indexes)) for topic, (name, indexes) in partitions.items()
    ]


def read(version: int, key: bytes, value: bytes) -> tuple[str, Record]:
    """(group id, record) of a key of this version and its value. Raises ProtocolError."""
    key_type, value_type, make = _KINDS[version]
    named, _ = key_type.decode(key, version, _VERSION.size)
    value_version = version_of(value)
    if value_version != VALUE_VERSION:
        raise ProtocolError(f"version {value_version} of {value_type.__name__} is not known")
    found, _ = value_type.decode(value, value_version, _VERSION.size)
    return named.group_id, make(named, found)


def _read_metadata(key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue) -> MemberMetadata:
    member = Member(
        key.member_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(value.subscribed_topic_names),
    )
    return MemberMetadata(key.member_id, member)


def _read_target(key: ShareGroupTargetAssignmentMemberKey, value: ShareGroupTargetAssignmentMemberValue) -> TargetMember:
    return TargetMember(key.member_id, {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions if each.partitions})


def _read_current(key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    assigned = {each.topic_id: dict.fromkeys(each.partitions, value.member_epoch) for each in value.assigned_partitions if each.partitions}
    member = Member(
        key.member_id,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=assigned,
    )
    return CurrentAssignment(key.member_id, member)


def _read_state(key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    return StatePartitions(_read_infos(value.initializing_topics), _read_infos(value.initialized_topics))


def _read_infos(topics: Iterable[TopicPartitionsInfo]) -> dict[bytes, tuple[str, frozenset[int]]]:
    return {each.topic_id: (each.topic_name, frozenset(each.partitions)) for each in topics}


_KINDS: Final[Mapping[int, tuple[Any, Any, Callable[[Any, Any], Record]]]] = {
    key.SCHEMA.versions.first: (key, value, make)
    for key, value, make in (
        (ShareGroupMetadataKey, ShareGroupMetadataValue, lambda key, value: GroupEpoch(value.epoch, value.metadata_hash)),
        (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue, _read_state),
        (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue, _read_metadata),
        (
            ShareGroupTargetAssignmentMetadataKey,
            ShareGroupTargetAssignmentMetadataValue,
            lambda key, value: TargetEpoch(value.assignment_epoch, value.assignment_timestamp),
        ),
        (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue, _read_target),
        (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue, _read_current),
    )
}
"""By the version of the key: key, value, and the record that they make. A log that is loaded applies the kinds in this order."""

KEYS_IN_ORDER: Final = tuple(_KINDS)
