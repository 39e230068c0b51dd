"""Declares DeleteShareGroupState (api 86): a group coordinator deletes the state of share partitions (KIP-932)."""

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
class PartitionData(Struct):
    partition: Int32 = field()


@struct
class DeleteStateData(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionData] = field()


@request(ApiKey.DELETE_SHARE_GROUP_STATE)
class DeleteShareGroupStateRequest(Message):
    group_id: String = field()
    topics: Array[DeleteStateData] = field()


@struct
class PartitionResult(Struct):
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)


@struct
class DeleteStateResult(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionResult] = field()


@response(ApiKey.DELETE_SHARE_GROUP_STATE)
class DeleteShareGroupStateResponse(Message):
    results: Array[DeleteStateResult] = field()
