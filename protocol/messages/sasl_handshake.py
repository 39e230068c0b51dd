"""sasl_handshake (api 17)."""

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int16, Message, String, field, request, response


@request(ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None)
class SaslHandshakeRequest(Message):
    mechanism: String = field()


@response(ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None)
class SaslHandshakeResponse(Message):
    error_code: Int16 = field()
    mechanisms: Array[String] = field()
