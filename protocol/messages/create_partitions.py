"""Declares CreatePartitions (api 37): a client adds partitions to topics (KIP-195). Version 3 may be throttled (KIP-599)."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: Array[Int32] = field()


@struct
class CreatePartitionsTopic(Struct):
    name: String = field()
    count: Int32 = field()
    assignments: NullableArray[CreatePartitionsAssignment] = field()


@request(ApiKey.CREATE_PARTITIONS)
class CreatePartitionsRequest(Message):
    topics: Array[CreatePartitionsTopic] = field()
    timeout_ms: Int32 = field()
    validate_only: Bool = field()


@struct
class CreatePartitionsTopicResult(Struct):
    name: String = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)


@response(ApiKey.CREATE_PARTITIONS)
class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = field()
    results: Array[CreatePartitionsTopicResult] = field()
