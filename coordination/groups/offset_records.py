"""Encodes and decodes committed offsets as records of `__consumer_offsets`.

Keys have version 1. Values have version 3, or 1 if a client gave a retention time. Hand-written code packs and reads them, because one
commit may name hundreds of partitions and a log has millions of offsets. `OffsetCommitKey` and `OffsetCommitValue` are the authority, and a
test compares both. They also handle rare forms of records, and values for older brokers of the cluster (`offset_value_version`).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.messages.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.schema.wire import ProtocolError
from ottla.protocol.topic_partition import TopicPartition

KEY_VERSION: Final = 1
VALUE_VERSION: Final = 3
VALUE_VERSION_WITH_EXPIRY: Final = 1
NO_EXPIRY: Final = -1
PLAIN_VALUE_SIZE: Final = 24
"""Bytes of a value without metadata."""

_VERSION = Struct(">h")
_KEY_START = Struct(">hh")  # version, length of the group's id
_LENGTH = Struct(">h")
_INDEX = Struct(">i")
_VALUE_START = Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_TIMESTAMP = Struct(">q")
_PLAIN_VALUE = Struct(">hqihq")  # the same without metadata, in one


class OffsetAndMetadata(NamedTuple):
    """An offset that a client commits. `expire_timestamp` is -1 unless the client gave a retention time (OffsetCommit 2 to 4)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRY


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    partition: TopicPartition


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """The key under which an offset is committed."""
    return offset_keys(group_id, (partition,))[0]


def offset_keys(group_id: str, partitions: Iterable[TopicPartition]) -> list[bytes]:
    """The keys of many: 0.2 µs each, where OffsetCommitKey takes 2."""
    pack_index = _INDEX.pack
    keys = []
    last_topic: str | None = None
    start = b""
    for topic, index in partitions:
        if topic is not last_topic:
            last_topic = topic
            start = key_start(group_id, topic)
        keys.append(start + pack_index(index))
    return keys


def key_start(group_id: str, topic: str) -> bytes:
    """The common start of the keys of a group and a topic; the partition follows, in four bytes."""
    group = group_id.encode()
    name = topic.encode()
    return _KEY_START.pack(KEY_VERSION, len(group)) + group + _LENGTH.pack(len(name)) + name


def offset_value(value: OffsetAndMetadata) -> bytes:
    """A committed offset."""
    offset, leader_epoch, metadata, commit_timestamp, expire_timestamp = value
    return encode_value(offset, leader_epoch, metadata.encode(), commit_timestamp, expire_timestamp)


def encode_value(offset: int, leader_epoch: int, metadata: bytes, commit_timestamp: int, expire_timestamp: int) -> bytes:
    """The same of its fields, the metadata in UTF-8."""
    if expire_timestamp == NO_EXPIRY:
        if not metadata:
            return _PLAIN_VALUE.pack(VALUE_VERSION, offset, leader_epoch, 0, commit_timestamp)
        return _VALUE_START.pack(VALUE_VERSION, offset, leader_epoch, len(metadata)) + metadata + _TIMESTAMP.pack(commit_timestamp)
    message = OffsetCommitValue(
        offset=offset, metadata=metadata.decode(), commit_timestamp=commit_timestamp, expire_timestamp=expire_timestamp
    )
    return _VERSION.pack(VALUE_VERSION_WITH_EXPIRY) + message.encode(VALUE_VERSION_WITH_EXPIRY)


def in_version(value: bytes, version: int) -> bytes:
    """A value converted to this version, without the fields that the version lacks; a value of an older version is unchanged."""
    if version_of(value) <= version:
        return value
    known = read_offset_value(value)
    message = OffsetCommitValue(offset=known.offset, metadata=known.metadata, commit_timestamp=known.commit_timestamp)
    return _VERSION.pack(version) + message.encode(version)


def read_offset_key(key: bytes) -> OffsetKey:
    """Whose offset of which partition, from a key of version 0 or 1. Raises ProtocolError."""
    commit, _ = OffsetCommitKey.decode(key, version_of(key), _VERSION.size)
    return OffsetKey(commit.group, TopicPartition(commit.topic, commit.partition))


def read_offset_value(value: bytes) -> OffsetAndMetadata:
    """A committed offset. Raises ProtocolError."""
    if len(value) == PLAIN_VALUE_SIZE:
        version, offset, leader_epoch, length, timestamp = _PLAIN_VALUE.unpack(value)
        if version == VALUE_VERSION and not length:
            return OffsetAndMetadata(offset, leader_epoch, "", timestamp)
    commit, _ = OffsetCommitValue.decode(value, version_of(value), _VERSION.size)
    return OffsetAndMetadata(commit.offset, commit.leader_epoch, commit.metadata, commit.commit_timestamp, commit.expire_timestamp)


def version_of(data: bytes) -> int:
    """The version that a key or a value begins with. Raises ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes where a version is expected")
    version: int = _VERSION.unpack_from(data)[0]
    return version
