"""Declares ElectLeaders (api 43, KIP-183): a client has preferred leaders elected now, from version 1 also unclean ones (KIP-460).

Null partitions stand for all.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int8,
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
class TopicPartitions(Struct):
    topic: String = field()
    partitions: Array[Int32] = field()


@request(ApiKey.ELECT_LEADERS)
class ElectLeadersRequest(Message):
    """`election_type` is 0 for preferred, 1 for unclean."""

    election_type: Int8 = since(1)
    topic_partitions: NullableArray[TopicPartitions] = field()
    timeout_ms: Int32 = field(default=60000)


@struct
class PartitionResult(Struct):
    partition_id: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()


@struct
class ReplicaElectionResult(Struct):
    topic: String = field()
    partition_result: Array[PartitionResult] = field()


@response(ApiKey.ELECT_LEADERS)
class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = since(1)
    replica_election_results: Array[ReplicaElectionResult] = field()
