"""Handles DescribeDelegationToken (api 41), versions 0-3. Refuses unauthenticated clients: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. KIP-48."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse


def handle_describe_delegation_token(request: DescribeDelegationTokenRequest, context: RequestContext) -> DescribeDelegationTokenResponse:
    """Refuse the request."""
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
