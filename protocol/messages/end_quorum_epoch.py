"""EndQuorumEpoch (api 54): a KRaft leader resigns (KIP-595). Version 1 names candidates and end points (KIP-853). Declared, not served."""

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
    until,
)


@struct
class ReplicaInfo(Struct):
    candidate_id: Int32 = field()
    candidate_directory_id: Uuid = field()


@struct
class EndQuorumEpochRequestPartitionData(Struct):
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()
    preferred_successors: Array[Int32] = until(0, ignorable=True)
    preferred_candidates: Array[ReplicaInfo] = since(1, ignorable=True)


@struct
class EndQuorumEpochRequestTopicData(Struct):
    topic_name: String = field()
    partitions: Array[EndQuorumEpochRequestPartitionData] = field()


@struct
class LeaderEndpoint(Struct):
    name: String = field()
    host: String = field()
    port: UInt16 = field()


@request(ApiKey.END_QUORUM_EPOCH)
class EndQuorumEpochRequest(Message):
    cluster_id: NullableString = field(default=None)
    topics: Array[EndQuorumEpochRequestTopicData] = field()
    leader_endpoints: Array[LeaderEndpoint] = since(1, ignorable=True)


@struct
class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class EndQuorumEpochResponseTopicData(Struct):
    topic_name: String = field()
    partitions: Array[EndQuorumEpochResponsePartitionData] = field()


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: UInt16 = field()


@response(ApiKey.END_QUORUM_EPOCH)
class EndQuorumEpochResponse(Message):
    error_code: Int16 = field()
    topics: Array[EndQuorumEpochResponseTopicData] = field()
    node_endpoints: Array[NodeEndpoint] = since(1, tag=0)
