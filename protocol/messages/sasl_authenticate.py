"""SaslAuthenticate (api 36): the tokens of a SASL exchange (KIP-152). 1 answers how long the session lives (KIP-368)."""

from protocol.api_keys import ApiKey
from protocol.schema.message import Bytes, Int16, Int64, Message, NullableString, field, request, response, since


@request(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateRequest(Message):
    auth_bytes: Bytes = field()


@response(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateResponse(Message):
    error_code: Int16 = field()
    error_message: NullableString = field()
    auth_bytes: Bytes = field()
    session_lifetime_ms: Int64 = since(1, ignorable=True)
