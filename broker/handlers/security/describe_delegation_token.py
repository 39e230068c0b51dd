"""Handles DescribeDelegationToken (api 41), versions 0-3. Version 3 also names the principal that requested a token (KIP-373). KIP-48."""

from ottla.broker.handlers.security.token_requests import tokens_of
from ottla.broker.request.context import RequestContext
from ottla.broker.security.delegation_tokens import TokenInformation
from ottla.broker.security.principals import Principal
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

FIRST_VERSION_WITH_REQUESTER = 3


async def handle_describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """List the tokens of some owners, or of all, that the client may see. A token that the client may not see is left out."""
    tokens = tokens_of(context)
    if isinstance(tokens, ErrorCode):
        return DescribeDelegationTokenResponse(error_code=tokens)
    owners: set[Principal] | None = None
    if request.owners is not None:
        owners = set()
        for owner in request.owners:
            owners.add(Principal(owner.principal_type, owner.principal_name))
            await pause()
    described = []
    for token in () if owners is not None and not owners else tokens.tokens:
        if _is_asked_for(token, owners) and _may_see(token, context):
            described.append(_described(token, tokens.hmac_of(token.token_id), context.api_version))
        await pause()
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=described)


def _is_asked_for(token: TokenInformation, owners: set[Principal] | None) -> bool:
    return owners is None or not owners.isdisjoint(token.holders)


def _may_see(token: TokenInformation, context: RequestContext) -> bool:
    return (
        context.client.principal in token.holders
        or context.is_authorized(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.is_authorized(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _described(token: TokenInformation, token_hmac: bytes, version: int) -> DescribedDelegationToken:
    described = DescribedDelegationToken(
        principal_type=token.owner.principal_type,
        principal_name=token.owner.name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=token_hmac,
        renewers=[DescribedDelegationTokenRenewer(principal_type=each.principal_type, principal_name=each.name) for each in token.renewers],
    )
    if version >= FIRST_VERSION_WITH_REQUESTER:
        described.token_requester_principal_type = token.requester.principal_type
        described.token_requester_principal_name = token.requester.name
    return described
