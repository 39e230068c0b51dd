"""Declares CreateDelegationToken (api 38): a client creates a delegation token (KIP-48).

Version 3 creates tokens for another owner, and returns the principal that requested the token (KIP-373).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bytes,
    Int16,
    Int32,
    Int64,
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
class CreatableRenewers(Struct):
    principal_type: String = field()
    principal_name: String = field()


@request(ApiKey.CREATE_DELEGATION_TOKEN)
class CreateDelegationTokenRequest(Message):
    owner_principal_type: NullableString = since(3)
    owner_principal_name: NullableString = since(3)
    renewers: Array[CreatableRenewers] = field()
    max_lifetime_ms: Int64 = field()


@response(ApiKey.CREATE_DELEGATION_TOKEN)
class CreateDelegationTokenResponse(Message):
    error_code: Int16 = field()
    principal_type: String = field()
    principal_name: String = field()
    token_requester_principal_type: String = since(3)
    token_requester_principal_name: String = since(3)
    issue_timestamp_ms: Int64 = field()
    expiry_timestamp_ms: Int64 = field()
    max_timestamp_ms: Int64 = field()
    token_id: String = field()
    hmac: Bytes = field()
    throttle_time_ms: Int32 = field()
