"""Declares DescribeDelegationToken (api 41, KIP-48): a broker lists the tokens of some owners, or (null) of all.

Version 3 returns the principal that requested each token (KIP-373).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
    String,
    Struct,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class DescribeDelegationTokenOwner(Struct):
    principal_type: String = field()
    principal_name: String = field()


@request(ApiKey.DESCRIBE_DELEGATION_TOKEN)
class DescribeDelegationTokenRequest(Message):
    owners: NullableArray[DescribeDelegationTokenOwner] = field()


@struct
class DescribedDelegationTokenRenewer(Struct):
    principal_type: String = field()
    principal_name: String = field()


@struct
class DescribedDelegationToken(Struct):
    principal_type: String = field()
    principal_name: String = field()
    token_requester_principal_type: String = since(3)
    token_requester_principal_name: String = since(3)
    issue_timestamp: Int64 = field()
    expiry_timestamp: Int64 = field()
    max_timestamp: Int64 = field()
    token_id: String = field()
    hmac: Bytes = field()
    renewers: Array[DescribedDelegationTokenRenewer] = field()


@response(ApiKey.DESCRIBE_DELEGATION_TOKEN)
class DescribeDelegationTokenResponse(Message):
    error_code: Int16 = field()
    tokens: Array[DescribedDelegationToken] = field()
    throttle_time_ms: Int32 = field()
