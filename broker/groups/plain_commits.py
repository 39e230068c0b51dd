"""Commits without metadata, from the request to the records without an object for each offset: 100 of them cost a quarter of the general
way (`python -m benchmarks.hot_path`).

What a request says of a partition (`protocol.offset_commit_fast_path`) stands in its record as it is, and between that much is the same
for all: so records, values and answers are joined, by topic, not encoded one by one. `record_encoding.encode_commits` is the authority, and
a test holds both equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from broker.groups.offset_records import KEY_VERSION, PLAIN_VALUE_SIZE, VALUE_VERSION, OffsetAndMetadata
from protocol.offset_commit_fast_path import MOST_OFFSETS, PlainTopic
from protocol.records.builder import VARINTS, encode_varint
from storage.disk.topic_partition import TopicPartition

_KEY_START = Struct(">hh")
_LENGTH = Struct(">h")
_POSITION = Struct(">qi")
_TIMESTAMP = Struct(">q")
_VALUE_VERSION: Final = _LENGTH.pack(VALUE_VERSION)
_NO_METADATA: Final = b"\0\0"
_NO_HEADERS: Final = b"\0"
_ATTRIBUTES_AND_TIME: Final = b"\0\0"
_PARTITION_SIZE: Final = 4
_DELTAS: Final = VARINTS[:MOST_OFFSETS]
_ONE_BYTE_DELTAS: Final = 64
"""So many offset deltas take one byte; the others two."""

_MIDDLE: Final = encode_varint(PLAIN_VALUE_SIZE) + _VALUE_VERSION
"""Between the partition in the key and the offset in the value."""

_END_SIZE: Final = len(_NO_METADATA) + _TIMESTAMP.size + len(_NO_HEADERS)
_LAYOUTS: Final = 64
_KNOWN_TOPICS: Final = 1024


class PlainCommit(NamedTuple):
    """Offsets of a group that are committed at once, at most MOST_OFFSETS; no topic and no partition twice."""

    topics: Sequence[PlainTopic]
    timestamp_ms: int
    total: int

    def records(self, group_id: str) -> bytes:
        """As `encode_commits` makes them."""
        end = _NO_METADATA + _TIMESTAMP.pack(self.timestamp_ms) + _NO_HEADERS
        parts: list[bytes] = []
        first = 0
        for _, name, indexes, index_bytes, positions in self.topics:
            count = len(indexes)
            short_start, start, head = _frame_of_records(group_id, name)
            short = min(max(_ONE_BYTE_DELTAS - first, 0), count)
            of_topic = [start, b"", head, b"", _MIDDLE, b"", end] * count
            of_topic[: short * 7 : 7] = [short_start] * short
            of_topic[1::7] = _DELTAS[first : first + count]
            of_topic[3::7] = index_bytes
            of_topic[5::7] = positions
            parts += of_topic
            first += count
        return b"".join(parts)

    def stored(self, topic: PlainTopic, record_offset: bytes) -> Sequence[bytes]:
        """The values of the records of a topic, each behind `record_offset`, as `CommittedOffsets` keeps them."""
        start = record_offset + _VALUE_VERSION
        end = _NO_METADATA + _TIMESTAMP.pack(self.timestamp_ms)
        values = b"".join((start, (end + start).join(topic.positions), end))
        return _equal_parts(len(topic.positions), len(record_offset) + PLAIN_VALUE_SIZE).unpack(values)

    def values(self) -> list[bytes]:
        """The values of the records, in their order."""
        return [value for topic in self.topics for value in self.stored(topic, b"")]

    def offsets(self) -> list[tuple[TopicPartition, OffsetAndMetadata]]:
        """The same as objects."""
        found = []
        for topic in self.topics:
            for index, position in zip(topic.indexes, topic.positions, strict=True):
                offset, leader_epoch = _POSITION.unpack(position)
                found.append((TopicPartition(topic.topic, index), OffsetAndMetadata(offset, leader_epoch, "", self.timestamp_ms)))
        return found


@lru_cache(_KNOWN_TOPICS)
def _frame_of_records(group_id: str, name: bytes) -> tuple[bytes, bytes, bytes]:
    """What is before the offset delta of a record, if that takes one byte and if two, and what is between it and the partition."""
    group = group_id.encode()
    key_start = _KEY_START.pack(KEY_VERSION, len(group)) + group + _LENGTH.pack(len(name)) + name
    head = encode_varint(len(key_start) + _PARTITION_SIZE) + key_start
    size = len(_ATTRIBUTES_AND_TIME) + 1 + len(head) + _PARTITION_SIZE + len(_MIDDLE) + _POSITION.size + _END_SIZE
    return encode_varint(size) + _ATTRIBUTES_AND_TIME, encode_varint(size + 1) + _ATTRIBUTES_AND_TIME, head


@lru_cache(_LAYOUTS)
def _equal_parts(count: int, size: int) -> Struct:
    return Struct(f"{size}s" * count)
