"""Authenticates by a password that the client sends (RFC 4616). Kafka's PlainSaslServer.

Users and passwords are options `user_NAME="PASSWORD"` of PlainLoginModule.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from ottla.broker.security.sasl.mechanism import AuthenticationRefused, SaslServer

_PARTS: Final = 3


class PlainServer(SaslServer):
    """See the module."""

    __slots__ = ("_password_of",)

    def __init__(self, password_of: Callable[[str], str | None]) -> None:
        """`password_of` returns the password of a user, None for an unknown one."""
        super().__init__()
        self._password_of = password_of

    def evaluate(self, token: bytes) -> bytes:
        """See `SaslServer`."""
        parts = token.decode("utf-8", "replace").split("\0", _PARTS)
        if len(parts) != _PARTS:
            raise AuthenticationRefused(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationRefused("Authentication failed: username not specified")
        if not password:
            raise AuthenticationRefused("Authentication failed: password not specified")
        expected = self._password_of(user)
        # An unknown user costs the same comparison.
        is_equal = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not is_equal:
            raise AuthenticationRefused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationRefused("Authentication failed: Client requested an authorization id that is different from username")
        self.authorization_id = user
        return b""
