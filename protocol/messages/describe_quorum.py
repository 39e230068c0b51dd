"""DescribeQuorum (api 55): the KRaft voters and observers (KIP-595). 1 says how far behind they are (KIP-836), 2 who they are (KIP-853).
Not served.
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
    UInt16,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class DescribeQuorumRequestPartitionData(Struct):
    partition_index: Int32 = field()


@struct
class DescribeQuorumRequestTopicData(Struct):
    topic_name: String = field()
    partitions: Array[DescribeQuorumRequestPartitionData] = field()


@request(ApiKey.DESCRIBE_QUORUM)
class DescribeQuorumRequest(Message):
    topics: Array[DescribeQuorumRequestTopicData] = field()


@struct
class ReplicaState(Struct):
    replica_id: Int32 = field()
    replica_directory_id: Uuid = since(2)
    log_end_offset: Int64 = field()
    last_fetch_timestamp: Int64 = since(1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = since(1, default=-1, ignorable=True)


@struct
class DescribeQuorumResponsePartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = since(2, ignorable=True)
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()
    high_watermark: Int64 = field()
    current_voters: Array[ReplicaState] = field()
    observers: Array[ReplicaState] = field()


@struct
class DescribeQuorumResponseTopicData(Struct):
    topic_name: String = field()
    partitions: Array[DescribeQuorumResponsePartitionData] = field()


@struct
class Listener(Struct):
    name: String = field()
    host: String = field()
    port: UInt16 = field()


@struct
class Node(Struct):
    node_id: Int32 = field()
    listeners: Array[Listener] = field()


@response(ApiKey.DESCRIBE_QUORUM)
class DescribeQuorumResponse(Message):
    error_code: Int16 = field()
    error_message: NullableString = since(2, ignorable=True)
    topics: Array[DescribeQuorumResponseTopicData] = field()
    nodes: Array[Node] = since(2)
