"""Declares Heartbeat (api 12): a member shows that it is alive, and learns whether a rebalance runs.

Version 3 names static members (KIP-345).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Int16, Int32, Message, NullableString, String, field, request, response, since


@request(ApiKey.HEARTBEAT)
class HeartbeatRequest(Message):
    group_id: String = field()
    generation_id: Int32 = field()
    member_id: String = field()
    group_instance_id: NullableString = since(3, default=None)


@response(ApiKey.HEARTBEAT)
class HeartbeatResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = field()
