"""Fetch of one partition, by hand: what a consumer sends all day, and the answer to it.

`read_with_id` and `read_with_name` give plain values for the broker's hot path, `read_fetch` the same objects as the generated decoder,
which is the authority: a test holds both equal on every recorded frame. Whatever is not the common shape (several partitions, a
follower's tags, forgotten topics, anything malformed) is answered with None, and the generated decoder then reads it or raises the right
error. Not compiled, the values take 0.7 µs, the objects 1.3, the generated decoder 2.3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from protocol.compiled import compiled
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.uuid import ZERO_UUID

FIRST_VERSION: Final = 7
LAST_VERSION: Final = 17
FIRST_VERSION_WITH_IDS: Final = 13
_LAST_WITH_NAMES: Final = 11  # 12 has both compact names and tags; few clients stay there
_FIRST_FENCED: Final = 9
_FIRST_WITHOUT_REPLICA_ID: Final = 15

_new = object.__new__
_NO_TAGS_NO_RACK: Final = b"\x00\x00\x01\x01\x00"  # tags of partition and topic, no forgotten topics, empty rack, tags of the request

_unpack_with_id = struct.Struct(">iiibiiB16sBiiqiqi5s").unpack_from
_unpack_head = struct.Struct(">iiiibiiih").unpack_from
_unpack_partition = struct.Struct(">iiqqii").unpack_from
_unpack_fenced_partition = struct.Struct(">iiiqqii").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_int16 = struct.Struct(">h").unpack_from

OnePartition = tuple[int, int, int, int, int, int, int, str | bytes, int, int, int, int, int, int]


def read_one_partition(frame: memoryview, offset: int, version: int) -> OnePartition | None:
    """The Fetch request at `offset`, or None to read it the general way. Versions 7 to 11 and 13 to 17.

    (replica id, max_wait_ms, min_bytes, max_bytes, isolation level, session id, session epoch, topic name or id, partition, current leader
    epoch, fetch offset, last fetched epoch, log start offset, partition_max_bytes).
    """
    return read_with_id(frame, offset, version) if version >= FIRST_VERSION_WITH_IDS else read_with_name(frame, offset, version)


def read_with_id(frame: memoryview, p: int, version: int) -> OnePartition | None:
    """The same at `p`, versions 13 to 17."""
    replica_id = -1
    try:
        if version < _FIRST_WITHOUT_REPLICA_ID:
            replica_id = _unpack_int32(frame, p)[0]
            p += 4
        (
            max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, topic_id, partitions, partition,
            current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes, rest,
        ) = _unpack_with_id(frame, p)  # fmt: skip
    except struct.error:
        return None
    if topics != 2 or partitions != 2 or rest != _NO_TAGS_NO_RACK:
        return None
    return (
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topic_id,
        partition,
        current_leader_epoch,
        fetch_offset,
        last_fetched_epoch,
        log_start_offset,
        partition_max_bytes,
    )


def read_with_name(frame: memoryview, p: int, version: int) -> OnePartition | None:
    """The same at `p`, versions 7 to 11."""
    if not FIRST_VERSION <= version <= _LAST_WITH_NAMES:
        return None
    try:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, length = _unpack_head(frame, p)
        p += 31
        if topics != 1 or length < 0:
            return None
        topic = str(frame[p : p + length], "utf-8")
        p += length
        current_leader_epoch = -1
        if version >= _FIRST_FENCED:
            (partitions, partition, current_leader_epoch, fetch_offset, log_start_offset, partition_max_bytes, forgotten) = (
                _unpack_fenced_partition(frame, p)
            )
            p += 36
        else:
            partitions, partition, fetch_offset, log_start_offset, partition_max_bytes, forgotten = _unpack_partition(frame, p)
            p += 32
        # Only version 11 goes on, with the rack.
        if partitions != 1 or forgotten or (version == _LAST_WITH_NAMES and _unpack_int16(frame, p)[0]):
            return None
    except (struct.error, UnicodeDecodeError):
        return None
    return (
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topic,
        partition,
        current_leader_epoch,
        fetch_offset,
        -1,
        log_start_offset,
        partition_max_bytes,
    )


def read_fetch(frame: memoryview, offset: int, version: int) -> FetchRequest | None:
    """The Fetch request at `offset`, or None to read it the general way. Versions 7 to 11 and 13 to 17."""
    values = read_one_partition(frame, offset, version)
    if values is None:
        return None
    request = _new(FetchRequest)
    topic = _new(FetchTopic)
    partition = _new(FetchPartition)
    state = _new(ReplicaState)
    (
        request.replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        name_or_id,
        partition.partition,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.log_start_offset,
        partition.partition_max_bytes,
    ) = values
    if isinstance(name_or_id, str):
        topic.topic = name_or_id
        topic.topic_id = ZERO_UUID
    else:
        topic.topic = ""
        topic.topic_id = name_or_id
    # What the wire does not always set.
    state.replica_id = -1
    state.replica_epoch = -1
    request.cluster_id = None
    request.replica_state = state
    request.topics = [topic]
    request.forgotten_topics_data = []
    request.rack_id = ""
    request.unknown_tagged_fields = state.unknown_tagged_fields = None
    topic.unknown_tagged_fields = partition.unknown_tagged_fields = None
    topic.partitions = [partition]
    partition.replica_directory_id = ZERO_UUID
    return request


END_WITH_ID: Final = b"\x00\x00\x00"  # tags of partition, topic and response
_NULL: Final = 0  # the lengths of arrays in flexible versions are one larger
_EMPTY: Final = 1

_pack_with_id = struct.Struct(">iBihiB16sBihqqqBi").pack
_pack_with_three = struct.Struct(">iBihiB16sBihqqqBi3B").pack
_pack_head = struct.Struct(">iihiih").pack
_pack_partition = struct.Struct(">iihqqqiii").pack


def begin_response_with_id(
    correlation_id: int,
    session_id: int,
    topic_id: bytes,
    partition: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    no_aborted_transactions: bool,
    size: int,
) -> bytes:
    """Response header and FetchResponse up to the `size` bytes of records of its one partition; END_WITH_ID follows them.

    Versions 13 to 17. `no_aborted_transactions` says that there are none (read_committed), instead of nothing about them. 0.5 µs.
    """
    aborted = _EMPTY if no_aborted_transactions else _NULL
    size += 1
    if 0x4000 <= size < 0x200000:  # what most fetches find, in one go
        return _pack_with_three(
            correlation_id, 0, 0, 0, session_id, 2, topic_id, 2, partition, 0, high_watermark, last_stable_offset, log_start_offset,
            aborted, -1, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14,
        )  # fmt: skip
    head = _pack_with_id(
        correlation_id, 0, 0, 0, session_id, 2, topic_id, 2, partition, 0, high_watermark, last_stable_offset, log_start_offset, aborted, -1
    )
    if size < 0x4000:
        if size < 0x80:
            return head + bytes((size,))
        return head + bytes((size & 0x7F | 0x80, size >> 7))
    if size < 0x10000000:
        return head + bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21))
    return head + bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21 & 0x7F | 0x80, size >> 28))


def begin_response_with_name(
    correlation_id: int,
    session_id: int,
    topic: str,
    partition: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    no_aborted_transactions: bool,
    size: int,
) -> bytes:
    """The same by name; nothing follows the records. Version 11."""
    name = topic.encode()
    aborted = 0 if no_aborted_transactions else -1
    return (
        _pack_head(correlation_id, 0, 0, session_id, 1, len(name))
        + name
        + _pack_partition(1, partition, 0, high_watermark, last_stable_offset, log_start_offset, aborted, -1, size)
    )


if not TYPE_CHECKING and (_native := compiled("protocol.native")) is not None:
    read_with_id = _native.read_with_id
    begin_response_with_id = _native.begin_response_with_id
