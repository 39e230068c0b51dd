"""ExpireDelegationToken (api 40), versions 0-2 (KIP-48). An unauthenticated client may not: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def handle_expire_delegation_token(request: ExpireDelegationTokenRequest, context: RequestContext) -> ExpireDelegationTokenResponse:
    """Refuse it."""
    return ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)
