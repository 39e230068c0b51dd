"""Declares AlterShareGroupOffsets (api 91): a client moves the start offsets of a share group without members (KIP-932)."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32 = field()
    start_offset: Int64 = field()


@struct
class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field()
    partitions: Array[AlterShareGroupOffsetsRequestPartition] = field()


@request(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
class AlterShareGroupOffsetsRequest(Message):
    group_id: String = field()
    topics: Array[AlterShareGroupOffsetsRequestTopic] = field()


@struct
class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)


@struct
class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field()
    topic_id: Uuid = field()
    partitions: Array[AlterShareGroupOffsetsResponsePartition] = field()


@response(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    responses: Array[AlterShareGroupOffsetsResponseTopic] = field()
