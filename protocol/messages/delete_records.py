"""Declares DeleteRecords (api 21): a client moves the log start offset forward (KIP-107); -1 is the high watermark."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int16, Int32, Int64, Message, String, Struct, field, request, response, struct


@struct
class DeleteRecordsPartition(Struct):
    partition_index: Int32 = field()
    offset: Int64 = field()


@struct
class DeleteRecordsTopic(Struct):
    name: String = field()
    partitions: Array[DeleteRecordsPartition] = field()


@request(ApiKey.DELETE_RECORDS)
class DeleteRecordsRequest(Message):
    topics: Array[DeleteRecordsTopic] = field()
    timeout_ms: Int32 = field()


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = field()
    low_watermark: Int64 = field()
    error_code: Int16 = field()


@struct
class DeleteRecordsTopicResult(Struct):
    name: String = field()
    partitions: Array[DeleteRecordsPartitionResult] = field()


@response(ApiKey.DELETE_RECORDS)
class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = field()
    topics: Array[DeleteRecordsTopicResult] = field()
