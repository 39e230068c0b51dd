"""Handles ExpireDelegationToken (api 40), versions 0-2. Only the owner and the renewers of a token may end it. KIP-48."""

from ottla.broker.handlers.security.token_requests import NO_TIMESTAMP, code_of, tokens_of
from ottla.broker.request.context import RequestContext
from ottla.broker.security.delegation_tokens import TokenRefused
from ottla.controller.errors import StoreError
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


async def handle_expire_delegation_token(request: ExpireDelegationTokenRequest, context: RequestContext) -> ExpireDelegationTokenResponse:
    """Set the end of a token. A negative period deletes it."""
    tokens = tokens_of(context)
    if isinstance(tokens, ErrorCode):
        return ExpireDelegationTokenResponse(error_code=tokens, expiry_timestamp_ms=NO_TIMESTAMP)
    try:
        expiry_ms = await tokens.expire(context.client.principal, bytes(request.hmac), request.expiry_time_period_ms)
    except (TokenRefused, StoreError, MalformedZNode) as error:
        return ExpireDelegationTokenResponse(error_code=code_of(error), expiry_timestamp_ms=NO_TIMESTAMP)
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry_ms)
