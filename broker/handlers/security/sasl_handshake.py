"""SaslHandshake (api 17), versions 0-1 (KIP-43). It belongs before authentication; a connection that comes this far is past it."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle_sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Refuse it: this listener has no SASL, or the client is authenticated."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
