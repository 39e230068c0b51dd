"""Declares InitializeShareGroupState (api 83): a group coordinator initializes the state of share partitions (KIP-932)."""

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
class PartitionData(Struct):
    partition: Int32 = field()
    state_epoch: Int32 = field()
    start_offset: Int64 = field()


@struct
class InitializeStateData(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionData] = field()


@request(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
class InitializeShareGroupStateRequest(Message):
    group_id: String = field()
    topics: Array[InitializeStateData] = field()


@struct
class PartitionResult(Struct):
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)


@struct
class InitializeStateResult(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionResult] = field()


@response(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
class InitializeShareGroupStateResponse(Message):
    results: Array[InitializeStateResult] = field()
