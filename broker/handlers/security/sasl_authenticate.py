"""Handles SaslAuthenticate (api 36), versions 0-2. Refuses it: requests reach this handler only after authentication. KIP-152."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle_sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Refuse the request: the listener has no SASL, or the client is authenticated."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslAuthenticate request received after successful authentication"
    )
