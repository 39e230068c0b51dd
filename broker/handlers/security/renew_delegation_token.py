"""Handles RenewDelegationToken (api 39), versions 0-2. Only the owner and the renewers of a token may renew it. KIP-48."""

from ottla.broker.handlers.security.token_requests import new_end
from ottla.broker.request.context import RequestContext
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def handle_renew_delegation_token(request: RenewDelegationTokenRequest, context: RequestContext) -> RenewDelegationTokenResponse:
    """Extend the life of a token."""
    principal = context.client.principal
    code, expiry_ms = await new_end(context, lambda tokens: tokens.renew(principal, bytes(request.hmac), request.renew_period_ms))
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms)
