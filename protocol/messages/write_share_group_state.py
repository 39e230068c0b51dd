"""Declares WriteShareGroupState (api 85): a leader writes the state of share partitions (KIP-932).

Version 1 counts the records that need no delivery any more (KIP-1226).
"""

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
    since,
    struct,
)


@struct
class StateBatch(Struct):
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    delivery_state: Int8 = field()
    delivery_count: Int16 = field()


@struct
class PartitionData(Struct):
    partition: Int32 = field()
    state_epoch: Int32 = field()
    leader_epoch: Int32 = field()
    start_offset: Int64 = field()
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)
    state_batches: Array[StateBatch] = field()


@struct
class WriteStateData(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionData] = field()


@request(ApiKey.WRITE_SHARE_GROUP_STATE)
class WriteShareGroupStateRequest(Message):
    group_id: String = field()
    topics: Array[WriteStateData] = field()


@struct
class PartitionResult(Struct):
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)


@struct
class WriteStateResult(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionResult] = field()


@response(ApiKey.WRITE_SHARE_GROUP_STATE)
class WriteShareGroupStateResponse(Message):
    results: Array[WriteStateResult] = field()
