"""Declares DescribeAcls (api 29): a broker lists the ACLs that match a filter (KIP-140).

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


@request(ApiKey.DESCRIBE_ACLS)
class DescribeAclsRequest(Message):
    resource_type_filter: Int8 = field()
    resource_name_filter: NullableString = field()
    pattern_type_filter: Int8 = since(1, default=3)
    principal_filter: NullableString = field()
    host_filter: NullableString = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@struct
class AclDescription(Struct):
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@struct
class DescribeAclsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    pattern_type: Int8 = since(1, default=3)
    acls: Array[AclDescription] = field()


@response(ApiKey.DESCRIBE_ACLS)
class DescribeAclsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()
    resources: Array[DescribeAclsResource] = field()
