"""Handles CreateDelegationToken (api 38), versions 0-3. Refuses unauthenticated clients: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. KIP-48."""

from broker.request.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

FIRST_VERSION_WITH_REQUESTER = 3


def handle_create_delegation_token(request: CreateDelegationTokenRequest, context: RequestContext) -> CreateDelegationTokenResponse:
    """Refuse the request."""
    principal = context.client.principal
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=(request.owner_principal_type or "") if request.owner_principal_name else principal.principal_type,
        principal_name=request.owner_principal_name or principal.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if context.api_version >= FIRST_VERSION_WITH_REQUESTER:
        response.token_requester_principal_type = principal.principal_type
        response.token_requester_principal_name = principal.name
    return response
