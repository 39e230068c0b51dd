"""UpdateRaftVoter (api 82, KIP-853): a KRaft voter tells its end points and versions. Declared, not served."""

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
    struct,
)


@struct
class Listener(Struct):
    name: String = field()
    host: String = field()
    port: UInt16 = field()


@struct
class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = field()
    max_supported_version: Int16 = field()


@request(ApiKey.UPDATE_RAFT_VOTER)
class UpdateRaftVoterRequest(Message):
    cluster_id: NullableString = field()
    current_leader_epoch: Int32 = field()
    voter_id: Int32 = field()
    voter_directory_id: Uuid = field()
    listeners: Array[Listener] = field()
    kraft_version_feature: KRaftVersionFeature = field()


@struct
class CurrentLeader(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    host: String = field()
    port: Int32 = field()


@response(ApiKey.UPDATE_RAFT_VOTER)
class UpdateRaftVoterResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    current_leader: CurrentLeader = field(tag=0)
