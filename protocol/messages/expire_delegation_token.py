"""Declares ExpireDelegationToken (api 40, KIP-48): a client brings forward the expiry of a token; a negative period ends it now."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Bytes, Int16, Int32, Int64, Message, field, request, response


@request(ApiKey.EXPIRE_DELEGATION_TOKEN)
class ExpireDelegationTokenRequest(Message):
    hmac: Bytes = field()
    expiry_time_period_ms: Int64 = field()


@response(ApiKey.EXPIRE_DELEGATION_TOKEN)
class ExpireDelegationTokenResponse(Message):
    error_code: Int16 = field()
    expiry_timestamp_ms: Int64 = field()
    throttle_time_ms: Int32 = field()
