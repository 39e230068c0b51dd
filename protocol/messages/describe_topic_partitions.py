"""Declares DescribeTopicPartitions (api 75, KIP-966): a broker lists partitions of topics in pages, with eligible leader replicas.

Clients use it only with KRaft; a broker in ZooKeeper mode does not list it in ApiVersions.
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
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class TopicRequest(Struct):
    name: String = field()


@struct
class DescribeTopicPartitionsRequestCursor(Struct):
    topic_name: String = field()
    partition_index: Int32 = field()


@request(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
class DescribeTopicPartitionsRequest(Message):
    topics: Array[TopicRequest] = field()
    response_partition_limit: Int32 = field(default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = field(default=None)


@struct
class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = field()
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    replica_nodes: Array[Int32] = field()
    isr_nodes: Array[Int32] = field()
    eligible_leader_replicas: NullableArray[Int32] = field(default=None)
    last_known_elr: NullableArray[Int32] = field(default=None)
    offline_replicas: Array[Int32] = field(ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = field()
    name: NullableString = field()
    topic_id: Uuid = field(ignorable=True)
    is_internal: Bool = field(ignorable=True)
    partitions: Array[DescribeTopicPartitionsResponsePartition] = field()
    topic_authorized_operations: Int32 = field(default=-(2**31))


@struct
class DescribeTopicPartitionsResponseCursor(Struct):
    topic_name: String = field()
    partition_index: Int32 = field()


@response(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: Array[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: DescribeTopicPartitionsResponseCursor | None = field(default=None)
