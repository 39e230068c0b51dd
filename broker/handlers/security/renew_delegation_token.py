"""RenewDelegationToken (api 39), versions 0-2 (KIP-48). An unauthenticated client may not: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def handle_renew_delegation_token(request: RenewDelegationTokenRequest, context: RequestContext) -> RenewDelegationTokenResponse:
    """Refuse it."""
    return RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)
