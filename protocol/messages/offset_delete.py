"""Declares OffsetDelete (api 47, KIP-496): a client deletes a group's offsets of topics to which no member subscribes."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int16, Int32, Message, String, Struct, field, request, response, struct


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = field()


@struct
class OffsetDeleteRequestTopic(Struct):
    name: String = field()
    partitions: Array[OffsetDeleteRequestPartition] = field()


@request(ApiKey.OFFSET_DELETE)
class OffsetDeleteRequest(Message):
    group_id: String = field()
    topics: Array[OffsetDeleteRequestTopic] = field()


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class OffsetDeleteResponseTopic(Struct):
    name: String = field()
    partitions: Array[OffsetDeleteResponsePartition] = field()


@response(ApiKey.OFFSET_DELETE)
class OffsetDeleteResponse(Message):
    error_code: Int16 = field()
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: Array[OffsetDeleteResponseTopic] = field()
