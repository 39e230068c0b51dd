"""Declares ListOffsets (api 2): a leader finds the offset of a timestamp.

Timestamp -1 asks for the end, -2 for the start, -3 for the record with the largest timestamp, -4 for the local start, -5 for the last
tiered offset. Version 0 answers a list of segment starts; later versions answer one offset and its timestamp (KIP-79).

- 2 has the isolation level (KIP-98).
- 4 has the leader epoch (KIP-320).
- 7 allows -3 (KIP-734), 8 allows -4 (KIP-405), 9 allows -5 (KIP-1005), 11 allows -6 (KIP-1023).
- 10 has a time limit for offsets in tiered storage (KIP-1075).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class ListOffsetsPartition(Struct):
    partition_index: Int32 = field()
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64 = field()
    max_num_offsets: Int32 = until(0, default=1)


@struct
class ListOffsetsTopic(Struct):
    name: String = field()
    partitions: Array[ListOffsetsPartition] = field()


@request(ApiKey.LIST_OFFSETS)
class ListOffsetsRequest(Message):
    """`replica_id` is -1 for consumers. Followers may see up to the end of the log."""

    replica_id: Int32 = field()
    isolation_level: Int8 = since(2)
    topics: Array[ListOffsetsTopic] = field()
    timeout_ms: Int32 = since(10, ignorable=True)


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    old_style_offsets: Array[Int64] = until(0)
    timestamp: Int64 = since(1, default=-1)
    offset: Int64 = since(1, default=-1)
    leader_epoch: Int32 = since(4, default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    name: String = field()
    partitions: Array[ListOffsetsPartitionResponse] = field()


@response(ApiKey.LIST_OFFSETS)
class ListOffsetsResponse(Message):
    throttle_time_ms: Int32 = since(2, ignorable=True)
    topics: Array[ListOffsetsTopicResponse] = field()
