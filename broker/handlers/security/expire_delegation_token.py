"""Handles ExpireDelegationToken (api 40), versions 0-2. Only the owner and the renewers of a token may end it. KIP-48."""

from ottla.broker.handlers.security.token_requests import new_end
from ottla.broker.request.context import RequestContext
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


async def handle_expire_delegation_token(request: ExpireDelegationTokenRequest, context: RequestContext) -> ExpireDelegationTokenResponse:
    """Set the end of a token. A negative period deletes it."""
    principal = context.client.principal
    code, expiry_ms = await new_end(context, lambda tokens: tokens.expire(principal, bytes(request.hmac), request.expiry_time_period_ms))
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms)
