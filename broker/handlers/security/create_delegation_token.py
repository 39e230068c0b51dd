"""Handles CreateDelegationToken (api 38), versions 0-3. The owner is the client, or another principal (KIP-373). KIP-48."""

from ottla.broker.handlers.security.token_requests import NO_TIMESTAMP, code_of, refusal
from ottla.broker.request.context import RequestContext
from ottla.broker.security.delegation_tokens import check_number_of_renewers
from ottla.broker.security.principals import USER_TYPE, Principal
from ottla.controller.errors import ControllerError, StoreError
from ottla.pauses import each
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

FIRST_VERSION_WITH_REQUESTER = 3


async def handle_create_delegation_token(request: CreateDelegationTokenRequest, context: RequestContext) -> CreateDelegationTokenResponse:
    """Create a token for the owner. Its HMAC is in the answer."""
    requester = context.client.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        error_code=refusal(context),
        principal_type=owner.principal_type,
        principal_name=owner.name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )
    if context.api_version >= FIRST_VERSION_WITH_REQUESTER:
        response.token_requester_principal_type = requester.principal_type
        response.token_requester_principal_name = requester.name
    if response.error_code:
        return response
    if owner != requester and not context.is_authorized(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        response.error_code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        return response
    try:
        check_number_of_renewers(len(request.renewers))
    except ControllerError as error:
        response.error_code = code_of(error)
        return response
    renewers = await each(request.renewers, lambda one: Principal(one.principal_type, one.principal_name))
    tokens = context.broker.administration.delegation_tokens
    if not all(named.principal_type == USER_TYPE for named in (owner, *renewers)):
        response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
    elif tokens is None:
        response.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    else:
        try:
            token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
        except (StoreError, ControllerError) as error:
            response.error_code = code_of(error)
            return response
        response.token_id = token.token_id
        response.hmac = tokens.hmac_of(token.token_id)
        response.issue_timestamp_ms = token.issue_timestamp_ms
        response.expiry_timestamp_ms = token.expiry_timestamp_ms
        response.max_timestamp_ms = token.max_timestamp_ms
    return response
