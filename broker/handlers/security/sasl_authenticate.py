"""Handles SaslAuthenticate (api 36), versions 0-2. Passes a client's token to its mechanism. KIP-152.

Versions from 1 on answer with the lifetime of the session (KIP-368). The first use of a delegation token waits for a thread.
"""

from collections.abc import Awaitable, Coroutine
from typing import Any

from ottla.broker.network.request_channel import Pending
from ottla.broker.request.context import RequestContext
from ottla.broker.request.last_answer import last_answer
from ottla.broker.security.sasl.session import AuthenticationFailed, SaslSession
from ottla.config.keys.security import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle_sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | Pending | Coroutine[Any, Any, SaslAuthenticateResponse]:
    """Continue the exchange of tokens. The connection is closed if the client fails to authenticate."""
    session = context.client.sasl
    if session is None or session.is_authenticated:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslAuthenticate request received after successful authentication"
        )
    token = bytes(request.auth_bytes)
    preparation = session.preparation(token)
    if preparation is None:
        return _continue(session, token, context)
    return _continue_after(preparation, session, token, context)


async def _continue_after(
    preparation: Awaitable[None], session: SaslSession, token: bytes, context: RequestContext
) -> SaslAuthenticateResponse:
    await preparation
    answer = _continue(session, token, context)
    assert isinstance(answer, SaslAuthenticateResponse)  # a first message with prepared work is not refused
    return answer


def _continue(session: SaslSession, token: bytes, context: RequestContext) -> SaslAuthenticateResponse | Pending:
    try:
        answer, lifetime_ms = session.on_token(token)
    except AuthenticationFailed as failed:
        context.offend(f"authentication failed: {failed}")
        delay_ms = context.broker.config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS]
        if failed.client_text is None:
            return last_answer(delay_ms)
        refusal = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=failed.client_text)
        return last_answer(delay_ms, context.encode(refusal))
    # The message is empty instead of null, as from Apache Kafka.
    return SaslAuthenticateResponse(error_code=ErrorCode.NONE, error_message="", auth_bytes=answer or b"", session_lifetime_ms=lifetime_ms)
