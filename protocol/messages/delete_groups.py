"""Declares DeleteGroups (api 42, KIP-229): a client deletes groups without members, and their offsets. Version 3 adds error messages."""

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
)


@request(ApiKey.DELETE_GROUPS)
class DeleteGroupsRequest(Message):
    groups_names: Array[String] = field()


@struct
class DeletableGroupResult(Struct):
    group_id: String = field()
    error_code: Int16 = field()
    error_message: NullableString = since(3, default=None, ignorable=True)


@response(ApiKey.DELETE_GROUPS)
class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = field()
    results: Array[DeletableGroupResult] = field()
