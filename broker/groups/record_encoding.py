"""Encodes the records of committed offsets as they stand in the body of a batch.

`coordination.record_encoding` does the same for any key and value, with an object for each; a test holds both equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from broker.coordination.record_encoding import ATTRIBUTES_AND_TIME, add_pair
from broker.groups.offset_records import (
    KEY_VERSION,
    NO_EXPIRY,
    PLAIN_VALUE_SIZE,
    VALUE_VERSION,
    OffsetAndMetadata,
    offset_keys,
    offset_value,
)
from protocol.records.builder import VARINTS, encode_varint
from storage.disk.topic_partition import TopicPartition

_KNOWN_VARINTS: Final = len(VARINTS)

_KEY_START = Struct(">hh")
_LENGTH = Struct(">h")
_PLAIN_TAIL = Struct(">iBhqihqB")  # the partition; the size of the value and the value; no headers
_PLAIN_VALUE = slice(5, 5 + PLAIN_VALUE_SIZE)
_PARTITION_SIZE = 4


def encode_commits(group_id: str, offsets: Sequence[tuple[TopicPartition, OffsetAndMetadata]]) -> tuple[bytes, list[bytes]]:
    """The records that commit these offsets, and their values. 0.35 µs each, without metadata."""
    parts: list[bytes] = []
    values: list[bytes] = []
    pack = _PLAIN_TAIL.pack
    group = group_id.encode()
    group_part = _KEY_START.pack(KEY_VERSION, len(group)) + group
    last_topic: str | None = None
    start = head = b""
    size = last_delta_size = 0
    for delta, pair in enumerate(offsets):
        (topic, index), (offset, leader_epoch, metadata, commit_timestamp, expire_timestamp) = pair
        if metadata or expire_timestamp != NO_EXPIRY:
            value = offset_value(pair[1])
            values.append(value)
            add_pair(delta, offset_keys(group_id, (pair[0],))[0], value, parts)
            continue
        delta_bytes = VARINTS[delta] if delta < _KNOWN_VARINTS else encode_varint(delta)
        if topic is not last_topic:
            last_topic = topic
            name = topic.encode()
            key_start = group_part + _LENGTH.pack(len(name)) + name
            head = encode_varint(len(key_start) + _PARTITION_SIZE) + key_start
            size = len(ATTRIBUTES_AND_TIME) + len(head) + _PLAIN_TAIL.size
            last_delta_size = 0
        if len(delta_bytes) != last_delta_size:
            last_delta_size = len(delta_bytes)
            start = encode_varint(size + last_delta_size) + ATTRIBUTES_AND_TIME
        tail = pack(index, PLAIN_VALUE_SIZE << 1, VALUE_VERSION, offset, leader_epoch, 0, commit_timestamp, 0)
        parts += (start, delta_bytes, head, tail)
        values.append(tail[_PLAIN_VALUE])
    return b"".join(parts), values
