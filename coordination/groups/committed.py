"""Keeps the committed offsets of a group as compactly as the log: 1,000,000 offsets take 130 MB less than as objects.

An entry by topic and partition is one `bytes` (`Stored`): the offset of the commit's batch in the log, and the value of its record. So a
commit keeps the bytes that were encoded for the log anyway, and loading keeps slices of the log. The deletion of a topic visits one entry
per group. The garbage collector does not visit the entries. One `unpack` reads the fields that are read often.

Invariants: every topic has offsets; every value can be read; of two commits the one with the higher position in the log stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla.coordination.groups.offset_records import (
    NO_EXPIRY,
    PLAIN_VALUE_SIZE,
    VALUE_VERSION,
    OffsetAndMetadata,
    offset_value,
    read_offset_value,
)
from ottla.protocol.topic_partition import TopicPartition

Stored: TypeAlias = bytes

RECORD_OFFSET_SIZE = 8
_RECORD_OFFSET = Struct(">q")
_PLAIN = Struct(">qhqihq")  # the offset of the batch; version, offset, leader epoch, length of the metadata, commit timestamp
_PLAIN_SIZE = RECORD_OFFSET_SIZE + PLAIN_VALUE_SIZE
_PLAIN_VERSION = slice(RECORD_OFFSET_SIZE, RECORD_OFFSET_SIZE + 2)
_PLAIN_LENGTH = slice(RECORD_OFFSET_SIZE + 14, RECORD_OFFSET_SIZE + 16)
_VERSION = VALUE_VERSION.to_bytes(2, "big")
_NO_METADATA = bytes(2)


class CommittedOffset(NamedTuple):
    """A commit and the offset of its batch in the log; -1 for one that is not there yet."""

    record_offset: int
    value: OffsetAndMetadata


def record_offset_of(record_offset: int) -> bytes:
    """The first bytes of a Stored. The larger of two has the higher position in the log."""
    return _RECORD_OFFSET.pack(record_offset)


def read_stored(stored: Stored) -> tuple[int, int, str]:
    """(offset, leader epoch, metadata)."""
    if len(stored) == _PLAIN_SIZE:
        _, version, offset, leader_epoch, length, _ = _PLAIN.unpack(stored)
        if version == VALUE_VERSION and not length:
            return offset, leader_epoch, ""
    value = read_offset_value(stored[RECORD_OFFSET_SIZE:])
    return value.offset, value.leader_epoch, value.metadata


def is_plain(stored: Stored) -> bool:
    """Whether it has version 3 and no metadata, as nearly all values. Such a value is always readable."""
    return len(stored) == _PLAIN_SIZE and stored[_PLAIN_VERSION] == _VERSION and stored[_PLAIN_LENGTH] == _NO_METADATA


def checked(stored: Stored) -> Stored:
    """The value in a version that is written here; any broker may have written the log. Raises ProtocolError."""
    return stored[:RECORD_OFFSET_SIZE] + offset_value(read_offset_value(stored[RECORD_OFFSET_SIZE:]))


class CommittedOffsets:
    """See the module."""

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[int, Stored]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_topic.values()))

    def __bool__(self) -> bool:
        return bool(self.by_topic)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, partitions in self.by_topic.items():
            for index in partitions:
                yield TopicPartition(topic, index)

    def __contains__(self, partition: TopicPartition) -> bool:
        return self.stored(partition) is not None

    def __getitem__(self, partition: TopicPartition) -> CommittedOffset:
        stored = self.by_topic[partition.topic][partition.partition]
        return CommittedOffset(_RECORD_OFFSET.unpack_from(stored)[0], read_offset_value(stored[RECORD_OFFSET_SIZE:]))

    def stored(self, partition: TopicPartition) -> Stored | None:
        """The stored commit of a partition; None if there is none."""
        partitions = self.by_topic.get(partition[0])
        return None if partitions is None else partitions.get(partition[1])

    def put(self, partition: TopicPartition, record_offset: bytes, value: bytes) -> None:
        """Store a commit that is in the log: the value of its record, and the offset of its batch in the form of `record_offset_of`."""
        topic, index = partition
        partitions = self.by_topic.get(topic)
        if partitions is None:
            self.by_topic[topic] = {index: record_offset + value}
            return
        known = partitions.get(index)
        if known is None or known[:RECORD_OFFSET_SIZE] < record_offset:
            partitions[index] = record_offset + value

    def put_topic(self, topic: str, values: Mapping[int, bytes | None], record_offset: bytes) -> None:
        """Put each value of a topic."""
        partitions = self.by_topic.get(topic, {})
        for index, value in values.items():
            if value is not None:
                known = partitions.get(index)
                if known is None or known[:RECORD_OFFSET_SIZE] < record_offset:
                    partitions[index] = record_offset + value
        if partitions:
            self.by_topic[topic] = partitions

    def merge(self, later: CommittedOffsets) -> None:
        """Put each commit of `later`, which has no other owner."""
        for topic, found in later.by_topic.items():
            partitions = self.by_topic.setdefault(topic, found)
            if partitions is not found:
                for index, stored in found.items():
                    known = partitions.get(index)
                    if known is None or known[:RECORD_OFFSET_SIZE] < stored[:RECORD_OFFSET_SIZE]:
                        partitions[index] = stored

    def adopt(self, topic: str, partitions: dict[int, Stored]) -> None:
        """Take all offsets of a topic, as they were loaded; the dict has no other owner."""
        if partitions:
            self.by_topic[topic] = partitions

    def discard(self, partition: TopicPartition) -> bool:
        """Remove the commit of a partition; False if there is none."""
        topic, index = partition
        partitions = self.by_topic.get(topic)
        if partitions is None or partitions.pop(index, None) is None:
            return False
        if not partitions:
            del self.by_topic[topic]
        return True

    def expired(self, topic: str, since_ms: int | None, now_ms: int, retention_ms: int) -> Iterator[TopicPartition]:
        """The partitions of a topic whose offset was kept for `retention_ms`, or until the time that the client gave.

        That is from `since_ms` on, or from its commit on when that is None.
        """
        for index, stored in self.by_topic.get(topic, {}).items():
            if len(stored) == _PLAIN_SIZE:
                committed_ms: int = _PLAIN.unpack(stored)[5]
                expires_ms = NO_EXPIRY
            else:
                value = read_offset_value(stored[RECORD_OFFSET_SIZE:])
                committed_ms, expires_ms = value.commit_timestamp, value.expire_timestamp
            if expires_ms == NO_EXPIRY:
                is_over = now_ms - (committed_ms if since_ms is None else since_ms) >= retention_ms
            else:
                is_over = now_ms >= expires_ms
            if is_over:
                yield TopicPartition(topic, index)
