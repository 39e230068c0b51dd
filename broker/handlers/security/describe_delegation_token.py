"""DescribeDelegationToken (api 41), versions 0-3 (KIP-48). An unauthenticated client may not: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse


def handle_describe_delegation_token(request: DescribeDelegationTokenRequest, context: RequestContext) -> DescribeDelegationTokenResponse:
    """Refuse it."""
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
