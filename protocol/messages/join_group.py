"""Declares JoinGroup (api 11): a client becomes a member and waits for the rebalance; the leader gets the metadata of all members.

- 1 has a separate rebalance timeout (KIP-62).
- 4 makes a new member join again with the member id from the first answer (KIP-394).
- 5 names static members (KIP-345).
- 7 answers the protocol type, and allows a null protocol (KIP-559).
- 8 gives the reason (KIP-800).
- 9 can make a static leader skip the assignment (KIP-814).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
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
class JoinGroupRequestProtocol(Struct):
    name: String = field()
    metadata: Bytes = field()


@request(ApiKey.JOIN_GROUP)
class JoinGroupRequest(Message):
    """Version 0 has no rebalance timeout; the session timeout is used instead."""

    group_id: String = field()
    session_timeout_ms: Int32 = field()
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: String = field()
    group_instance_id: NullableString = since(5, default=None)
    protocol_type: String = field()
    protocols: Array[JoinGroupRequestProtocol] = field()
    reason: NullableString = since(8, default=None, ignorable=True)


@struct
class JoinGroupResponseMember(Struct):
    member_id: String = field()
    group_instance_id: NullableString = since(5, default=None, ignorable=True)
    metadata: Bytes = field()


@response(ApiKey.JOIN_GROUP)
class JoinGroupResponse(Message):
    throttle_time_ms: Int32 = since(2, ignorable=True)
    error_code: Int16 = field()
    generation_id: Int32 = field(default=-1)
    protocol_type: NullableString = since(7, default=None, ignorable=True)
    protocol_name: NullableString = field(nullable_since=7)
    leader: String = field()
    skip_assignment: Bool = since(9)
    member_id: String = field()
    members: Array[JoinGroupResponseMember] = field()
