"""Declares LeaveGroup (api 13): one member, or from version 3 several members, leave at once.

Version 3 can name static members (KIP-345), version 5 gives the reason (KIP-800).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
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
    until,
)


@struct
class MemberIdentity(Struct):
    member_id: String = field()
    group_instance_id: NullableString = field(default=None)
    reason: NullableString = since(5, default=None, ignorable=True)


@request(ApiKey.LEAVE_GROUP)
class LeaveGroupRequest(Message):
    group_id: String = field()
    member_id: String = until(2)
    members: Array[MemberIdentity] = since(3)


@struct
class MemberResponse(Struct):
    member_id: String = field()
    group_instance_id: NullableString = field()
    error_code: Int16 = field()


@response(ApiKey.LEAVE_GROUP)
class LeaveGroupResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = field()
    members: Array[MemberResponse] = since(3)
