"""Declares ListPartitionReassignments (api 46, KIP-455): a broker lists the reassignments in progress."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
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
class ListPartitionReassignmentsTopics(Struct):
    name: String = field()
    partition_indexes: Array[Int32] = field()


@request(ApiKey.LIST_PARTITION_REASSIGNMENTS)
class ListPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = field(default=60000)
    topics: NullableArray[ListPartitionReassignmentsTopics] = field(default=None)


@struct
class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = field()
    replicas: Array[Int32] = field()
    adding_replicas: Array[Int32] = field()
    removing_replicas: Array[Int32] = field()


@struct
class OngoingTopicReassignment(Struct):
    name: String = field()
    partitions: Array[OngoingPartitionReassignment] = field()


@response(ApiKey.LIST_PARTITION_REASSIGNMENTS)
class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()
    topics: Array[OngoingTopicReassignment] = field()
