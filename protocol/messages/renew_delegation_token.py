"""Declares RenewDelegationToken (api 39, KIP-48): a client moves the expiry of a token, which is found by its HMAC."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Bytes, Int16, Int32, Int64, Message, field, request, response


@request(ApiKey.RENEW_DELEGATION_TOKEN)
class RenewDelegationTokenRequest(Message):
    hmac: Bytes = field()
    renew_period_ms: Int64 = field()


@response(ApiKey.RENEW_DELEGATION_TOKEN)
class RenewDelegationTokenResponse(Message):
    error_code: Int16 = field()
    expiry_timestamp_ms: Int64 = field()
    throttle_time_ms: Int32 = field()
