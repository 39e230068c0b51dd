"""RemoveRaftVoter (api 81, KIP-853): remove a voter from a KRaft quorum. Declared, not served."""

from protocol.api_keys import ApiKey
from protocol.schema.message import Int16, Int32, Message, NullableString, Uuid, field, request, response


@request(ApiKey.REMOVE_RAFT_VOTER)
class RemoveRaftVoterRequest(Message):
    cluster_id: NullableString = field()
    voter_id: Int32 = field()
    voter_directory_id: Uuid = field()


@response(ApiKey.REMOVE_RAFT_VOTER)
class RemoveRaftVoterResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(ignorable=True)
