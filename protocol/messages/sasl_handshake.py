"""SaslHandshake (api 17): choose the mechanism (KIP-43).

After version 0 the tokens follow without headers; after 1 they travel in SaslAuthenticate (KIP-152). It never became flexible, because
old clients cannot cope with another version.
"""

from protocol.api_keys import ApiKey
from protocol.schema.message import Array, Int16, Message, String, field, request, response


@request(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeRequest(Message):
    mechanism: String = field()


@response(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeResponse(Message):
    error_code: Int16 = field()
    mechanisms: Array[String] = field()
