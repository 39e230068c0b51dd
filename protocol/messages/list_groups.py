"""Declares ListGroups (api 16): a broker lists the groups that it coordinates.

Version 4 filters by state and answers the state (KIP-518), version 5 does the same with the type (KIP-848).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int16, Int32, Message, String, Struct, field, request, response, since, struct


@request(ApiKey.LIST_GROUPS)
class ListGroupsRequest(Message):
    states_filter: Array[String] = since(4)
    types_filter: Array[String] = since(5)


@struct
class ListedGroup(Struct):
    group_id: String = field()
    protocol_type: String = field()
    group_state: String = since(4, ignorable=True)
    group_type: String = since(5, ignorable=True)


@response(ApiKey.LIST_GROUPS)
class ListGroupsResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = field()
    groups: Array[ListedGroup] = field()
