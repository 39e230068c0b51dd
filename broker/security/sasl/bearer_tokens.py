"""Reads bearer tokens, and validates unsecured ones, which are for tests only. Kafka's OAuthBearerUnsecuredValidatorCallbackHandler.

`ottla.broker.security.sasl.signed_tokens` validates the others.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from ottla.config.sasl import UnsecuredTokens


class Token(NamedTuple):
    """A valid token. `expires_ms` counts from the epoch."""

    principal_name: str
    expires_ms: int


class InvalidToken(Exception):
    """A token is not valid. `scope` is the required one if the token lacks it."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope


def validate_unsecured(compact: str, accepted: UnsecuredTokens, now_ms: int) -> Token:
    """The unsecured token in its compact form, `header.claims.`. Raises InvalidToken."""
    parts = compact.split(".")
    if len(parts) != 3:
        raise InvalidToken("the token is malformed")
    header, claims = json_object(parts[0]), json_object(parts[1])
    if header.get("alg") != "none" or parts[2]:
        raise InvalidToken("the token is signed")
    principal = claims.get(accepted.principal_claim_name)
    if not isinstance(principal, str) or not principal.strip():
        raise InvalidToken(f"no principal name in claim {accepted.principal_claim_name}")
    skew = accepted.allowable_clock_skew_ms
    issued = time_ms(claims, "iat")
    expires = time_ms(claims, "exp")
    if issued is not None and issued > now_ms + skew:
        raise InvalidToken("the token is not issued yet")
    if expires is None:
        raise InvalidToken("the token has no expiration time")
    if now_ms - skew >= expires:
        raise InvalidToken("the token has expired")
    if issued is not None and expires <= issued:
        raise InvalidToken("the token expires before it is issued")
    scope = claims.get(accepted.scope_claim_name, [])
    scopes = scope if isinstance(scope, list) else [scope]
    given = {each.strip() for each in scopes if isinstance(each, str)}
    if not given.issuperset(accepted.required_scope):
        raise InvalidToken("the token lacks a scope", f"[{', '.join(accepted.required_scope)}]")
    return Token(principal, int(expires))


def json_object(part: str | bytes) -> dict[str, Any]:
    """The object of a part of a token: its text in base64, or its decoded bytes. Raises InvalidToken."""
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True) if isinstance(part, str) else part
        found = json.loads(data)
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidToken("the token is malformed") from None
    if not isinstance(found, dict):
        raise InvalidToken("the token is malformed")
    return found


def time_ms(claims: dict[str, Any], name: str) -> float | None:
    """The time of a claim in ms; None without the claim. Raises InvalidToken."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
        raise InvalidToken(f"the claim {name} is no time")
    return value * 1000
