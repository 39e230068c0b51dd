"""Declares DeleteAcls (api 31): a client deletes the ACLs that match filters; the answer lists the deleted ones (KIP-140).

Version 1 has prefixed patterns (KIP-290), version 3 user resources (KIP-373).
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
    field,
    request,
    response,
    since,
    struct,
)


@struct
class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = field()
    resource_name_filter: NullableString = field()
    pattern_type_filter: Int8 = since(1, default=3)
    principal_filter: NullableString = field()
    host_filter: NullableString = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@request(ApiKey.DELETE_ACLS)
class DeleteAclsRequest(Message):
    filters: Array[DeleteAclsFilter] = field()


@struct
class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = field()
    error_message: NullableString = field()
    resource_type: Int8 = field()
    resource_name: String = field()
    pattern_type: Int8 = since(1, default=3)
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@struct
class DeleteAclsFilterResult(Struct):
    error_code: Int16 = field()
    error_message: NullableString = field()
    matching_acls: Array[DeleteAclsMatchingAcl] = field()


@response(ApiKey.DELETE_ACLS)
class DeleteAclsResponse(Message):
    throttle_time_ms: Int32 = field()
    filter_results: Array[DeleteAclsFilterResult] = field()
