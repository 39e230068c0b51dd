"""Declares CreateAcls (api 30): a client creates ACLs (KIP-140).

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
class AclCreation(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    resource_pattern_type: Int8 = since(1, default=3)
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@request(ApiKey.CREATE_ACLS)
class CreateAclsRequest(Message):
    creations: Array[AclCreation] = field()


@struct
class AclCreationResult(Struct):
    error_code: Int16 = field()
    error_message: NullableString = field()


@response(ApiKey.CREATE_ACLS)
class CreateAclsResponse(Message):
    throttle_time_ms: Int32 = field()
    results: Array[AclCreationResult] = field()
