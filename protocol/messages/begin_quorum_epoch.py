"""BeginQuorumEpoch (api 53): a KRaft leader announces itself (KIP-595). Version 1 names voters and end points (KIP-853). Declared, not
served.
"""

from protocol.api_keys import ApiKey
from protocol.schema.message import (
    Array,
    Int16,
    Int32,
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
class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: Int32 = field()
    voter_directory_id: Uuid = since(1, ignorable=True)
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: String = field()
    partitions: Array[BeginQuorumEpochRequestPartitionData] = field()


@struct
class LeaderEndpoint(Struct):
    name: String = field()
    host: String = field()
    port: UInt16 = field()


@request(ApiKey.BEGIN_QUORUM_EPOCH)
class BeginQuorumEpochRequest(Message):
    cluster_id: NullableString = field(default=None)
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[BeginQuorumEpochRequestTopicData] = field()
    leader_endpoints: Array[LeaderEndpoint] = since(1, ignorable=True)


@struct
class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: String = field()
    partitions: Array[BeginQuorumEpochResponsePartitionData] = field()


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: UInt16 = field()


@response(ApiKey.BEGIN_QUORUM_EPOCH)
class BeginQuorumEpochResponse(Message):
    error_code: Int16 = field()
    topics: Array[BeginQuorumEpochResponseTopicData] = field()
    node_endpoints: Array[NodeEndpoint] = since(1, tag=0)
