"""SaslAuthenticate (api 36), versions 0-2 (KIP-152). It belongs to authentication; a connection that comes this far is past it."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle_sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Refuse it: this listener has no SASL, or the client is authenticated."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslAuthenticate request received after successful authentication"
    )
