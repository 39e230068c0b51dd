"""Declares DescribeShareGroupOffsets (api 90): a client reads the start offsets of share groups (KIP-932).

Version 1 has the lag (KIP-1226).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
    NullableString,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field()
    partitions: Array[Int32] = field()


@struct
class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: String = field()
    topics: NullableArray[DescribeShareGroupOffsetsRequestTopic] = field()


@request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
class DescribeShareGroupOffsetsRequest(Message):
    groups: Array[DescribeShareGroupOffsetsRequestGroup] = field()


@struct
class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = field()
    start_offset: Int64 = field()
    leader_epoch: Int32 = field()
    lag: Int64 = since(1, default=-1, ignorable=True)
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field()
    topic_id: Uuid = field()
    partitions: Array[DescribeShareGroupOffsetsResponsePartition] = field()


@struct
class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: String = field()
    topics: Array[DescribeShareGroupOffsetsResponseTopic] = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)


@response(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = field()
    groups: Array[DescribeShareGroupOffsetsResponseGroup] = field()
