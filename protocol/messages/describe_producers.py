"""Declares DescribeProducers (api 61, KIP-664): a leader lists the producers of a partition, and their open transactions."""

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
    field,
    request,
    response,
    struct,
)


@struct
class TopicRequest(Struct):
    name: String = field()
    partition_indexes: Array[Int32] = field()


@request(ApiKey.DESCRIBE_PRODUCERS)
class DescribeProducersRequest(Message):
    topics: Array[TopicRequest] = field()


@struct
class ProducerState(Struct):
    producer_id: Int64 = field()
    producer_epoch: Int32 = field()
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32 = field()
    current_txn_start_offset: Int64 = field(default=-1)


@struct
class PartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    active_producers: Array[ProducerState] = field()


@struct
class TopicResponse(Struct):
    name: String = field()
    partitions: Array[PartitionResponse] = field()


@response(ApiKey.DESCRIBE_PRODUCERS)
class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = field()
    topics: Array[TopicResponse] = field()
