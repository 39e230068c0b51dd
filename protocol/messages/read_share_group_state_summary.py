"""ReadShareGroupStateSummary (api 87, KIP-932): where a share partition starts, without its batches. Between brokers; declared, not
served.
"""

from protocol.api_keys import ApiKey
from protocol.schema.message import (
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
    start_offset: Int64 = field()


@struct
class ReadStateSummaryResult(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionResult] = field()


@response(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
class ReadShareGroupStateSummaryResponse(Message):
    results: Array[ReadStateSummaryResult] = field()
