"""Declares SyncGroup (api 14): the leader sends the assignments, and every member receives its own.

Version 3 names static members (KIP-345). Version 5 has protocol type and name, which must be those of the group (KIP-559).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
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
class SyncGroupRequestAssignment(Struct):
    member_id: String = field()
    assignment: Bytes = field()


@request(ApiKey.SYNC_GROUP)
class SyncGroupRequest(Message):
    group_id: String = field()
    generation_id: Int32 = field()
    member_id: String = field()
    group_instance_id: NullableString = since(3, default=None)
    protocol_type: NullableString = since(5, default=None, ignorable=True)
    protocol_name: NullableString = since(5, default=None, ignorable=True)
    assignments: Array[SyncGroupRequestAssignment] = field()


@response(ApiKey.SYNC_GROUP)
class SyncGroupResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = field()
    protocol_type: NullableString = since(5, default=None, ignorable=True)
    protocol_name: NullableString = since(5, default=None, ignorable=True)
    assignment: Bytes = field()
