"""Handles ExpireDelegationToken (api 40), versions 0-2. Refuses unauthenticated clients: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. KIP-48."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def handle_expire_delegation_token(request: ExpireDelegationTokenRequest, context: RequestContext) -> ExpireDelegationTokenResponse:
    """Refuse the request."""
    return ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)
