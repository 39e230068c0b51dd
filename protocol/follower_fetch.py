"""The Fetch that goes on between brokers all day, by hand: an incremental request of a follower, and the answer to it.

`read_follower_fetch` and `encode_follower_answer` are the leader's side, `encode_follower_fetch` and `read_follower_answer` the follower's.
The messages in `protocol.messages.fetch` are the authority, and tests hold both equal, on recorded frames of Apache Kafka's followers, too.
Whatever is not the common shape (forgotten topics, racks, directory ids, other tags, anything malformed) is answered with None, and what is
generated does it. Versions 15 to 17, which say the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from protocol.schema.wire import uvarint

FIRST_VERSION: Final = 15
"""The first with topic ids whose follower says who it is at the end."""
LAST_VERSION: Final = 17

_HEAD: Final = struct.Struct(">iiibii")  # max wait, min bytes, max bytes, isolation level, session id, session epoch
_PARTITION: Final = struct.Struct(">iiqiqib")  # and its empty section of tags
_END: Final = struct.Struct(">BB3siqB")  # no forgotten topics, no rack, one tag (1) of 13 bytes: replica id and epoch, which has no tags
_REPLICA_STATE: Final = b"\x01\x01\x0d"
_NO_TAGS: Final = b"\x00"
_NO_DIRECTORY: Final = bytes(16)
_EMPTY: Final = 1  # the lengths of arrays and strings are one larger
_ONE_BYTE: Final = 0x80

NamedPartition = tuple[int, int, int, int, int, int, int]
"""(partition, current leader epoch, fetch offset, last fetched epoch, log start offset, partition_max_bytes, 0)."""
FollowerFetch = tuple[int, int, int, int, int, int, list[tuple[bytes, list[NamedPartition]]]]


def encode_follower_fetch(request: FetchRequest) -> bytes | None:
    """The bytes of a follower's request, or None to encode it the general way. Raises struct.error for numbers that do not fit."""
    state = request.replica_state
    if (
        request.forgotten_topics_data
        or request.isolation_level
        or request.rack_id
        or request.cluster_id is not None
        or request.unknown_tagged_fields
        or request.replica_id != -1
        or state.replica_id < 0
        or state.unknown_tagged_fields
    ):
        return None
    topics = request.topics
    out = [
        _HEAD.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, 0, request.session_id, request.session_epoch),
        uvarint(len(topics) + 1),
    ]
    for topic in topics:
        partitions = topic.partitions
        out.append(topic.topic_id)
        out.append(uvarint(len(partitions) + 1))
        for asked in partitions:
            if asked.replica_directory_id != _NO_DIRECTORY or asked.unknown_tagged_fields:
                return None
            out.append(
                _PARTITION.pack(
                    asked.partition,
                    asked.current_leader_epoch,
                    asked.fetch_offset,
                    asked.last_fetched_epoch,
                    asked.log_start_offset,
                    asked.partition_max_bytes,
                    0,
                )
            )
        if topic.unknown_tagged_fields:
            return None
        out.append(_NO_TAGS)
    out.append(_END.pack(_EMPTY, _EMPTY, _REPLICA_STATE, state.replica_id, state.replica_epoch, 0))
    return b"".join(out)


def read_follower_fetch(frame: memoryview, offset: int) -> FollowerFetch | None:
    """The request of a follower at `offset`, or None to read it the general way.

    (replica id, max_wait_ms, min_bytes, max_bytes, session id, session epoch, [(topic id, [partition])]).
    """
    end = len(frame) - _END.size
    p = offset + _HEAD.size
    if end <= p:
        return None
    forgotten, rack, state, replica_id, _, tags = _END.unpack_from(frame, end)
    if state != _REPLICA_STATE or forgotten != _EMPTY or rack != _EMPTY or tags:
        return None
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _HEAD.unpack_from(frame, offset)
    topic_count = frame[p]
    if isolation_level or not 0 < topic_count < _ONE_BYTE:
        return None
    p += 1
    topics: list[tuple[bytes, list[NamedPartition]]] = []
    for _ in range(topic_count - 1):
        count = frame[p + 16] if p + 17 < end else 0
        begin = p + 17
        if count >= _ONE_BYTE:
            count += (frame[begin] << 7) - _ONE_BYTE
            begin += 1
        after = begin + (count - 1) * _PARTITION.size
        if not begin < after < end or count >= _ONE_BYTE << 7 or frame[after]:
            return None
        partitions: list[NamedPartition] = list(_PARTITION.iter_unpack(frame[begin:after]))
        for partition in partitions:
            if partition[6]:
                return None
        topics.append((bytes(frame[p : p + 16]), partitions))
        p = after + 1
    if p != end:
        return None
    return replica_id, max_wait_ms, min_bytes, max_bytes, session_id, session_epoch, topics


class Sized(Protocol):
    """Records that somebody else sends: a region of a file."""

    def __len__(self) -> int: ...


_Region = TypeVar("_Region", bound=Sized)

_ANSWER: Final = struct.Struct(">iBihi")  # correlation id, no tags; throttle time, error code, session id
_ANSWERED: Final = struct.Struct(">ihqqqBi")  # no aborted transactions (null), no preferred replica
_NO_RECORDS_NO_TAGS: Final = b"\x01\x00"


def encode_follower_answer(
    correlation_id: int, session_id: int, topics: Sequence[tuple[bytes, list[tuple[int, int, int, int, _Region | None]]]]
) -> list[bytes | _Region]:
    """Response header and FetchResponse of [(topic id, [(partition, high watermark, last stable offset, log start offset, records)])].

    In parts: records are parts of their own.
    """
    parts: list[bytes | _Region] = []
    text = _ANSWER.pack(correlation_id, 0, 0, 0, session_id) + uvarint(len(topics) + 1)
    for topic_id, partitions in topics:
        text += topic_id + uvarint(len(partitions) + 1)
        for index, high_watermark, last_stable_offset, log_start_offset, records in partitions:
            text += _ANSWERED.pack(index, 0, high_watermark, last_stable_offset, log_start_offset, 0, -1)
            if records is None:
                text += _NO_RECORDS_NO_TAGS
            else:
                parts.append(text + uvarint(len(records) + 1))
                parts.append(records)
                text = _NO_TAGS
        text += _NO_TAGS
    parts.append(text + _NO_TAGS)
    return parts


_RESPONSE: Final = struct.Struct(">ihi")  # throttle time, error code, session id
_new = object.__new__
# What an answer without tags does not say. Shared, for nobody changes what was received.
_NO_EPOCH: Final = EpochEndOffset()
_NO_LEADER: Final = LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = SnapshotId()


def read_follower_answer(frame: memoryview, offset: int) -> FetchResponse | None:
    """The FetchResponse at `offset` in version 13 or above, or None to read it the general way. Records are views of the frame."""
    try:
        response = _new(FetchResponse)
        response.throttle_time_ms, response.error_code, response.session_id = _RESPONSE.unpack_from(frame, offset)
        p = offset + _RESPONSE.size
        topic_count = frame[p] - 1
        if not 0 <= topic_count < _ONE_BYTE - 1:
            return None
        p += 1
        response.responses = topics = []
        for _ in range(topic_count):
            topic = _new(FetchableTopicResponse)
            topic.topic = ""
            topic.topic_id = bytes(frame[p : p + 16])
            count = frame[p + 16] - 1
            p += 17
            if not 0 <= count < _ONE_BYTE - 1:
                return None
            topic.partitions = partitions = []
            for _ in range(count):
                data = _new(PartitionData)
                (
                    data.partition_index,
                    data.error_code,
                    data.high_watermark,
                    data.last_stable_offset,
                    data.log_start_offset,
                    aborted_transactions,
                    data.preferred_read_replica,
                ) = _ANSWERED.unpack_from(frame, p)
                p += _ANSWERED.size
                size = frame[p]
                p += 1
                if size >= _ONE_BYTE:
                    byte = frame[p]
                    size += (byte << 7) - 128
                    p += 1
                    if byte >= _ONE_BYTE:
                        byte = frame[p]
                        size += (byte << 14) - 16384
                        p += 1
                        if byte >= _ONE_BYTE:
                            byte = frame[p]
                            size += (byte << 21) - 2097152
                            p += 1
                            if byte >= _ONE_BYTE:
                                return None
                end = p + size - 1
                # Tags, aborted transactions or records that are null are not the common shape.
                if aborted_transactions or not size or frame[end]:
                    return None
                data.records = frame[p:end]
                data.diverging_epoch = _NO_EPOCH
                data.current_leader = _NO_LEADER
                data.snapshot_id = _NO_SNAPSHOT
                data.aborted_transactions = None
                data.unknown_tagged_fields = None
                partitions.append(data)
                p = end + 1
            if frame[p]:
                return None
            p += 1
            topic.unknown_tagged_fields = None
            topics.append(topic)
        if frame[p] or p + 1 != len(frame):
            return None
    except (struct.error, IndexError):
        return None
    response.node_endpoints = []
    response.unknown_tagged_fields = None
    return response
