"""Declares ReadShareGroupState (api 84): a leader reads the state of share partitions (KIP-932)."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int8,
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
    leader_epoch: Int32 = field()


@struct
class ReadStateData(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionData] = field()


@request(ApiKey.READ_SHARE_GROUP_STATE)
class ReadShareGroupStateRequest(Message):
    group_id: String = field()
    topics: Array[ReadStateData] = field()


@struct
class StateBatch(Struct):
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    delivery_state: Int8 = field()
    delivery_count: Int16 = field()


@struct
class PartitionResult(Struct):
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    state_epoch: Int32 = field()
    start_offset: Int64 = field()
    state_batches: Array[StateBatch] = field()


@struct
class ReadStateResult(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionResult] = field()


@response(ApiKey.READ_SHARE_GROUP_STATE)
class ReadShareGroupStateResponse(Message):
    results: Array[ReadStateResult] = field()
