"""Vote (api 52): a KRaft candidate asks for votes (KIP-595). Version 1 names voters by directory (KIP-853). Declared, not served."""

from protocol.api_keys import ApiKey
from protocol.schema.message import (
    Array,
    Bool,
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
class VoteRequestPartitionData(Struct):
    partition_index: Int32 = field()
    candidate_epoch: Int32 = field()
    candidate_id: Int32 = field()
    candidate_directory_id: Uuid = since(1, ignorable=True)
    voter_directory_id: Uuid = since(1, ignorable=True)
    last_offset_epoch: Int32 = field()
    last_offset: Int64 = field()


@struct
class VoteRequestTopicData(Struct):
    topic_name: String = field()
    partitions: Array[VoteRequestPartitionData] = field()


@request(ApiKey.VOTE)
class VoteRequest(Message):
    cluster_id: NullableString = field(default=None)
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[VoteRequestTopicData] = field()


@struct
class VoteResponsePartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()
    vote_granted: Bool = field()


@struct
class VoteResponseTopicData(Struct):
    topic_name: String = field()
    partitions: Array[VoteResponsePartitionData] = field()


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: UInt16 = field()


@response(ApiKey.VOTE)
class VoteResponse(Message):
    error_code: Int16 = field()
    topics: Array[VoteResponseTopicData] = field()
    node_endpoints: Array[NodeEndpoint] = since(1, tag=0)
