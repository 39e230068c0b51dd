"""Declares DeleteShareGroupOffsets (api 92): a client deletes the start offsets of a share group without members (KIP-932)."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int16,
    Int32,
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
class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field()


@request(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
class DeleteShareGroupOffsetsRequest(Message):
    group_id: String = field()
    topics: Array[DeleteShareGroupOffsetsRequestTopic] = field()


@struct
class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field()
    topic_id: Uuid = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)


@response(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    responses: Array[DeleteShareGroupOffsetsResponseTopic] = field()
