"""Declares SaslHandshake (api 17): a client chooses the SASL mechanism (KIP-43).

After version 0 the tokens follow without headers; after version 1 they are sent in SaslAuthenticate (KIP-152). The API has no flexible
version, because old clients cannot cope with another version.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int16, Message, String, field, request, response


@request(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeRequest(Message):
    mechanism: String = field()


@response(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeResponse(Message):
    error_code: Int16 = field()
    mechanisms: Array[String] = field()
