"""Declares SaslAuthenticate (api 36): client and broker exchange the tokens of SASL (KIP-152).

Version 1 answers the lifetime of the session (KIP-368).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Bytes, Int16, Int64, Message, NullableString, field, request, response, since


@request(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateRequest(Message):
    auth_bytes: Bytes = field()


@response(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateResponse(Message):
    error_code: Int16 = field()
    error_message: NullableString = field()
    auth_bytes: Bytes = field()
    session_lifetime_ms: Int64 = since(1, ignorable=True)
