"""Handles SaslHandshake (api 17), versions 0-1. Refuses it: requests reach this handler only after authentication. KIP-43."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle_sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Refuse the request: the listener has no SASL, or the client is authenticated."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
