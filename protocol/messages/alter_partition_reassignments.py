"""Declares AlterPartitionReassignments (api 45, KIP-455): a client moves replicas to other brokers; null replicas cancel a move.

Version 1 can forbid that the replication factor changes (KIP-860).
"""

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
    since,
    struct,
)


@struct
class ReassignablePartition(Struct):
    partition_index: Int32 = field()
    replicas: NullableArray[Int32] = field(default=None)


@struct
class ReassignableTopic(Struct):
    name: String = field()
    partitions: Array[ReassignablePartition] = field()


@request(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = since(1, default=True)
    topics: Array[ReassignableTopic] = field()


@struct
class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()


@struct
class ReassignableTopicResponse(Struct):
    name: String = field()
    partitions: Array[ReassignablePartitionResponse] = field()


@response(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = field()
    allow_replication_factor_change: Bool = since(1, default=True, ignorable=True)
    error_code: Int16 = field()
    error_message: NullableString = field()
    responses: Array[ReassignableTopicResponse] = field()
