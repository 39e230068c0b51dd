"""Declares FindCoordinator (api 10): a broker names the coordinator of a group or of a transactional id.

- 4 has many keys in one request (KIP-699).
- 5 may answer TRANSACTION_ABORTABLE (KIP-890).
- 6 knows share groups (KIP-932).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    between,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@request(ApiKey.FIND_COORDINATOR)
class FindCoordinatorRequest(Message):
    """`key_type` is 0 for a group, 1 for a transactional id, 2 for a share group."""

    key: String = until(3)
    key_type: Int8 = since(1)
    coordinator_keys: Array[String] = since(4)


@struct
class Coordinator(Struct):
    key: String = field()
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(ignorable=True)


@response(ApiKey.FIND_COORDINATOR)
class FindCoordinatorResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = until(3)
    error_message: NullableString = between(1, 3, ignorable=True)
    node_id: Int32 = until(3)
    host: String = until(3)
    port: Int32 = until(3)
    coordinators: Array[Coordinator] = since(4)
