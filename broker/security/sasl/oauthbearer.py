"""Authenticates by bearer tokens (RFC 7628). Kafka's OAuthBearerSaslServer.

A token that is not valid is answered with a JSON status; the client sends one byte more, and then the exchange fails with that status.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ottla.broker.security.sasl.bearer_tokens import InvalidToken, Token
from ottla.broker.security.sasl.mechanism import SASL_NAME, AuthenticationRefused, InvalidCredentials, SaslServer, is_sasl_name

_INITIAL: Final = re.compile(rf"n,(?:a=({SASL_NAME}))?,\x01((?:[A-Za-z]++=[\x21-\x7E \t\r\n]++\x01)*)\x01")
_AUTH: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_KVSEP: Final = b"\x01"


class OAuthBearerServer(SaslServer):
    """See the module."""

    __slots__ = ("_error", "_validate")

    def __init__(self, validate: Callable[[str], Token]) -> None:
        """`validate` returns the content of a token, or raises InvalidToken."""
        super().__init__()
        self._validate = validate
        self._error: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        """See `SaslServer`."""
        if self._error is not None and token == _KVSEP:
            raise AuthenticationRefused(self._error)
        self._error = None
        message = _INITIAL.fullmatch(token.decode("utf-8", "replace"))
        if message is None or not is_sasl_name(message[1] or ""):
            raise InvalidCredentials("Invalid OAUTHBEARER client first message")
        pairs = dict(pair.partition("=")[::2] for pair in message[2].split("\x01") if pair)
        auth = _AUTH.fullmatch(pairs.get("auth", ""))
        if auth is None or auth[1].lower() != "bearer":
            raise InvalidCredentials("Invalid OAUTHBEARER client first message: invalid 'auth' format")
        try:
            valid = self._validate(auth[2])
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
