"""Handles RenewDelegationToken (api 39), versions 0-2. Refuses unauthenticated clients: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. KIP-48."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def handle_renew_delegation_token(request: RenewDelegationTokenRequest, context: RequestContext) -> RenewDelegationTokenResponse:
    """Refuse the request."""
    return RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)
