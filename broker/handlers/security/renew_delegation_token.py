"""Handles RenewDelegationToken (api 39), versions 0-2. Only the owner and the renewers of a token may renew it. KIP-48."""

from ottla.broker.handlers.security.token_requests import NO_TIMESTAMP, code_of, tokens_of
from ottla.broker.request.context import RequestContext
from ottla.broker.security.delegation_tokens import TokenRefused
from ottla.controller.errors import StoreError
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def handle_renew_delegation_token(request: RenewDelegationTokenRequest, context: RequestContext) -> RenewDelegationTokenResponse:
    """Extend the life of a token."""
    tokens = tokens_of(context)
    if isinstance(tokens, ErrorCode):
        return RenewDelegationTokenResponse(error_code=tokens, expiry_timestamp_ms=NO_TIMESTAMP)
    try:
        expiry_ms = await tokens.renew(context.client.principal, bytes(request.hmac), request.renew_period_ms)
    except (TokenRefused, StoreError, MalformedZNode) as error:
        return RenewDelegationTokenResponse(error_code=code_of(error), expiry_timestamp_ms=NO_TIMESTAMP)
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry_ms)
