"""Authenticates by unsecured bearer tokens (RFC 7628), which are for tests only. Kafka's OAuthBearerSaslServer and its default accepted.

A token that is not valid is answered with a JSON status; the client sends one byte more, and then the exchange fails with that status.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.security.sasl.mechanism import AuthenticationRefused, InvalidCredentials, SaslServer
from config.sasl import UnsecuredTokens

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_INITIAL: Final = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01")
_AUTH: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_KVSEP: Final = b"\x01"


class Token(NamedTuple):
    """A valid token. `expires_ms` counts from the epoch."""

    principal_name: str
    expires_ms: int


class InvalidToken(Exception):
    """A token is not valid. `scope` is the required one if the token lacks it."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope


def validate(compact: str, accepted: UnsecuredTokens, now_ms: int) -> Token:
    """The unsecured token in its compact form, `header.claims.`. Raises InvalidToken."""
    parts = compact.split(".")
    if len(parts) != 3:
        raise InvalidToken("the token is malformed")
    header, claims = _json(parts[0]), _json(parts[1])
    if header.get("alg") != "none" or parts[2]:
        raise InvalidToken("the token is signed")
    principal = claims.get(accepted.principal_claim_name)
    if not isinstance(principal, str) or not principal.strip():
        raise InvalidToken(f"no principal name in claim {accepted.principal_claim_name}")
    skew = accepted.allowable_clock_skew_ms
    issued = _time(claims, "iat")
    expires = _time(claims, "exp")
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


def _json(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidToken("the token is malformed") from None
    if not isinstance(found, dict):
        raise InvalidToken("the token is malformed")
    return found


def _time(claims: dict[str, Any], name: str) -> float | None:
    """The time of a claim in ms; None without the claim."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
        raise InvalidToken(f"the claim {name} is no time")
    return value * 1000


class OAuthBearerServer(SaslServer):
    """See the module."""

    __slots__ = ("_accepted", "_error", "_now_ms")

    def __init__(self, accepted: UnsecuredTokens, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._accepted = accepted
        self._now_ms = now_ms
        self._error: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        """See `SaslServer`."""
        if self._error is not None and token == _KVSEP:
            raise AuthenticationRefused(self._error)
        self._error = None
        message = _INITIAL.fullmatch(token.decode("utf-8", "replace"))
        if message is None:
            raise InvalidCredentials("Invalid OAUTHBEARER client first message")
        pairs = dict(pair.partition("=")[::2] for pair in message[2].split("\x01") if pair)
        auth = _AUTH.fullmatch(pairs.get("auth", ""))
        if auth is None or auth[1].lower() != "bearer":
            raise InvalidCredentials("Invalid OAUTHBEARER client first message: invalid 'auth' format")
        try:
            valid = validate(auth[2], self._accepted, self._now_ms())
        except InvalidToken as invalid:
            self._error = '{"status":"invalid_token"}'
            if invalid.scope is not None:
                self._error = f'{{"status":"insufficient_scope", "scope":"{invalid.scope}"}}'
            return self._error.encode()
        if message[1] not in (None, valid.principal_name):
            raise AuthenticationRefused(
                f"Authentication failed: Client requested an authorization id ({message[1]}) that is different from "
                f"the token's principal name ({valid.principal_name})"
            )
        self.authorization_id = valid.principal_name
        self.credential_expires_ms = valid.expires_ms
        return b""
