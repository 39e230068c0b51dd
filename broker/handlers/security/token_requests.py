"""Decides which clients may use requests about delegation tokens, and which error codes the requests get."""

from collections.abc import Awaitable, Callable

from ottla.broker.request.context import RequestContext
from ottla.broker.security.delegation_tokens import DelegationTokens, TokenExpired, TokenNotFound, TokenOwnerMismatch, TokenRefused
from ottla.broker.security.principals import ANONYMOUS
from ottla.config.listeners import SecurityProtocol
from ottla.controller.errors import StoreError
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.coordination.error_map import error_code
from ottla.protocol.errors import ErrorCode

NO_TIMESTAMP = -1
"""The timestamp of a response with an error."""

_CODES: dict[type[Exception], ErrorCode] = {
    TokenNotFound: ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    TokenOwnerMismatch: ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    TokenExpired: ErrorCode.DELEGATION_TOKEN_EXPIRED,
}


def refusal(context: RequestContext) -> ErrorCode:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that is not authenticated, or is by a token itself; else NONE."""
    client = context.client
    protocol = client.security_protocol
    if (
        client.principal.token_authenticated
        or protocol == SecurityProtocol.PLAINTEXT.name
        or (protocol == SecurityProtocol.SSL.name and client.principal == ANONYMOUS)
    ):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.NONE


def tokens_of(context: RequestContext) -> DelegationTokens | ErrorCode:
    """The delegation tokens, or the code for a client that cannot have any."""
    code = refusal(context)
    if code:
        return code
    return context.broker.administration.delegation_tokens or ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def new_end(context: RequestContext, change: Callable[[DelegationTokens], Awaitable[int]]) -> tuple[ErrorCode, int]:
    """The code and the end of a token that `change` renews or ends."""
    tokens = tokens_of(context)
    if isinstance(tokens, ErrorCode):
        return tokens, NO_TIMESTAMP
    try:
        return ErrorCode.NONE, await change(tokens)
    except (TokenRefused, StoreError, MalformedZNode) as error:
        return code_of(error), NO_TIMESTAMP


def code_of(error: Exception) -> ErrorCode:
    """The code of an error of `DelegationTokens`."""
    return _CODES.get(type(error)) or error_code(error)
