"""Declares ReadShareGroupStateSummary (api 87): a group coordinator reads the start offsets of share partitions (KIP-932).

Version 1 counts the records that need no delivery any more (KIP-1226).
"""

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
    since,
    struct,
)


@struct
class PartitionData(Struct):
    partition: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class ReadStateSummaryData(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionData] = field()


@request(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
class ReadShareGroupStateSummaryRequest(Message):
    group_id: String = field()
    topics: Array[ReadStateSummaryData] = field()


@struct
class PartitionResult(Struct):
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    state_epoch: Int32 = field()
    leader_epoch: Int32 = field()
    start_offset: Int64 = field()
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)


@struct
class ReadStateSummaryResult(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionResult] = field()


@response(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
class ReadShareGroupStateSummaryResponse(Message):
    results: Array[ReadStateSummaryResult] = field()
