"""Declares DescribeGroups (api 15): a broker gives state, protocol and members of classic groups.

Version 3 can answer authorized operations (KIP-430), version 4 the names of static members (KIP-345). Version 6 answers
GROUP_ID_NOT_FOUND, with a message, for an unknown group (KIP-1043).
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


@request(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsRequest(Message):
    groups: Array[String] = field()
    include_authorized_operations: Bool = since(3)


@struct
class DescribedGroupMember(Struct):
    member_id: String = field()
    group_instance_id: NullableString = since(4, default=None, ignorable=True)
    client_id: String = field()
    client_host: String = field()
    member_metadata: Bytes = field()
    member_assignment: Bytes = field()


@struct
class DescribedGroup(Struct):
    error_code: Int16 = field()
    error_message: NullableString = since(6, default=None)
    group_id: String = field()
    group_state: String = field()
    protocol_type: String = field()
    protocol_data: String = field()
    members: Array[DescribedGroupMember] = field()
    authorized_operations: Int32 = since(3, default=-(2**31))


@response(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    groups: Array[DescribedGroup] = field()
