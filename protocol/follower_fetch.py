"""The Fetch that goes on between brokers all day, by hand, as the follower sees it: its incremental request, and the answer to it.

The messages in `protocol.messages.fetch` are the authority, and tests hold both equal, on recorded frames of Apache Kafka's followers, too.
Whatever is not the common shape (forgotten topics, racks, directory ids, other tags, anything malformed) is answered with None, and what is
generated does it. Versions 15 to 17, which say the same.
"""

from __future__ import annotations

import struct
from typing import Final

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


_ANSWERED: Final = struct.Struct(">ihqqqBi")  # no aborted transactions (null), no preferred replica
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
