"""AddRaftVoter (api 80, KIP-853): add a voter to a KRaft quorum. Declared, not served."""

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


@request(ApiKey.ADD_RAFT_VOTER)
class AddRaftVoterRequest(Message):
    cluster_id: NullableString = field()
    timeout_ms: Int32 = field()
    voter_id: Int32 = field()
    voter_directory_id: Uuid = field()
    listeners: Array[Listener] = field()


@response(ApiKey.ADD_RAFT_VOTER)
class AddRaftVoterResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(ignorable=True)
