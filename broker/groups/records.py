"""The records of `__consumer_offsets`, in the versions that Apache Kafka 3.9 writes.

A key says by its version what it is of: 0 and 1 a committed offset, 2 a group. Values are offset commits of version 3 (1 when they have an
expiry of their own) and group metadata of version 3. Newer keys are left by brokers with the new group protocol and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from broker.groups.group import Group
from broker.groups.offsets import NO_EXPIRY, OffsetAndMetadata
from protocol.messages.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol.messages.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from protocol.wire import ProtocolError
from storage.topic_partition import TopicPartition

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3

_VERSION = Struct(">h")
_KEY_START = Struct(">hh")  # version, length of the group's id
_LENGTH = Struct(">h")
_INDEX = Struct(">i").pack
_VALUE_START = Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_TIMESTAMP = Struct(">q")
_TIMEOUTS = Struct(">iii").pack  # a member's rebalance and session timeout, and the length of its subscription
_NULL = _LENGTH.pack(-1)
_VALUE = Struct(">hqihq").pack  # the same without metadata, in one


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """The key under which an offset is committed."""
    return offset_keys(group_id, (partition,))[0]


def offset_keys(group_id: str, partitions: Iterable[TopicPartition]) -> list[bytes]:
    """The keys of many. Packed by hand, for OffsetCommit names hundreds: 0.2 µs each, where OffsetCommitKey takes 2."""
    group = group_id.encode()
    group_part = _KEY_START.pack(OFFSET_KEY_VERSION, len(group)) + group
    keys = []
    last_topic: str | None = None
    topic_part = b""
    for topic, index in partitions:
        if topic is not last_topic:
            last_topic = topic
            name = topic.encode()
            topic_part = group_part + _LENGTH.pack(len(name)) + name
        keys.append(topic_part + _INDEX(index))
    return keys


def offset_value(value: OffsetAndMetadata) -> bytes:
    """A committed offset. Packed by hand as the keys are, unless it expires by itself."""
    offset, leader_epoch, metadata, commit_timestamp, expire_timestamp = value
    if expire_timestamp == NO_EXPIRY:
        if not metadata:
            return _VALUE(OFFSET_VALUE_VERSION, offset, leader_epoch, 0, commit_timestamp)
        text = metadata.encode()
        return _VALUE_START.pack(OFFSET_VALUE_VERSION, offset, leader_epoch, len(text)) + text + _TIMESTAMP.pack(commit_timestamp)
    message = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=commit_timestamp, expire_timestamp=expire_timestamp)
    return _VERSION.pack(OFFSET_VALUE_VERSION_WITH_EXPIRY) + message.encode(OFFSET_VALUE_VERSION_WITH_EXPIRY)


def group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return _VERSION.pack(GROUP_KEY_VERSION) + GroupMetadataKey(group=group_id).encode(GROUP_KEY_VERSION)


def group_value(group: Group, assignment: Mapping[str, bytes]) -> bytes:
    """The group as it is now, with an assignment for each member. Packed by hand too: 1 µs a member, of which there may be thousands."""
    protocol = group.protocol_name
    state_timestamp_ms = group.state_timestamp_ms
    parts = [
        _VERSION.pack(GROUP_VALUE_VERSION),
        _string(group.protocol_type or ""),
        _INDEX(group.generation_id),
        _nullable_string(protocol),
        _nullable_string(group.leader_id),
        _TIMESTAMP.pack(-1 if state_timestamp_ms is None else state_timestamp_ms),
        _INDEX(len(group.members)),
    ]
    clients: dict[tuple[str, str], bytes] = {}
    for member_id, member in group.members.items():
        client = member.client_id, member.client_host
        client_part = clients.get(client)
        if client_part is None:
            client_part = clients[client] = _string(member.client_id) + _string(member.client_host)
        subscription = member.metadata(protocol)
        assigned = assignment[member_id]
        parts += (
            _string(member_id),
            _nullable_string(member.group_instance_id),
            client_part,
            _TIMEOUTS(member.rebalance_timeout_ms, member.session_timeout_ms, len(subscription)),
            subscription,
            _INDEX(len(assigned)),
            assigned,
        )
    return b"".join(parts)


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _nullable_string(text: str | None) -> bytes:
    return _NULL if text is None else _string(text)


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """What a record is of; None for a key of a later version. Raises ProtocolError."""
    version = _version_of(key)
    if 0 <= version <= OFFSET_KEY_VERSION:
        commit, _ = OffsetCommitKey.decode(key, version, _VERSION.size)
        return OffsetKey(commit.group, TopicPartition(commit.topic, commit.partition))
    if version == GROUP_KEY_VERSION:
        group, _ = GroupMetadataKey.decode(key, version, _VERSION.size)
        return GroupKey(group.group)
    return None


def read_offset_value(value: bytes) -> OffsetAndMetadata:
    """A committed offset. Raises ProtocolError."""
    commit, _ = OffsetCommitValue.decode(value, _version_of(value), _VERSION.size)
    return OffsetAndMetadata(commit.offset, commit.leader_epoch, commit.metadata, commit.commit_timestamp, commit.expire_timestamp)


def read_group_value(value: bytes) -> tuple[int, GroupMetadataValue]:
    """(version, a group's metadata). Raises ProtocolError."""
    version = _version_of(value)
    message, _ = GroupMetadataValue.decode(value, version, _VERSION.size)
    return version, message


def _version_of(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes where a version is expected")
    version: int = _VERSION.unpack_from(data)[0]
    return version
