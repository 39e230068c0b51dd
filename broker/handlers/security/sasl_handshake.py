"""Handles SaslHandshake (api 17), versions 0-1. Lets a client choose its SASL mechanism, and begins the exchange of tokens. KIP-43.

After version 0, tokens follow without request headers. After version 1, they are in SaslAuthenticate (KIP-152).
"""

from ottla.broker.network.request_channel import Pending
from ottla.broker.request.context import RequestContext
from ottla.broker.request.last_answer import last_answer
from ottla.config.keys.security import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

FIRST_VERSION_WITH_AUTHENTICATE = 1


def handle_sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse | Pending:
    """Begin the exchange of a mechanism. The connection is closed if the listener does not offer it."""
    session = context.client.sasl
    if session is None or session.is_authenticated:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if session.on_handshake(request.mechanism, with_headers=context.api_version >= FIRST_VERSION_WITH_AUTHENTICATE):
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=session.mechanisms)
    context.offend(f"SASL mechanism {request.mechanism[:40]!r} is not enabled")
    refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=session.mechanisms)
    return last_answer(context.broker.config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS], context.encode(refusal))
