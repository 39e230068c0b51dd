"""Defines the exchange of one SASL mechanism from the server's side, and how it fails.

`ottla.broker.serving.authentication` makes one `SaslServer` per authentication and passes the client's tokens to it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

SASL_NAME: Final = r"[\x01-\x2b\x2d-\x7f]++"
"""Fits a name in a message (RFC 5802, saslname), for which `is_sasl_name` has to be true, too. A pattern that knew the two escapes would
repeat a group, and each repetition takes time and memory. The name of an unauthenticated client may be as long as a frame."""


def is_sasl_name(text: str) -> bool:
    """Whether every `=` in a text that fits SASL_NAME is that of `=2C`, a comma, or of `=3D`, itself."""
    return text.count("=") == text.count("=2C") + text.count("=3D")


class InvalidCredentials(Exception):
    """The exchange failed. The client reads a fixed text that names only the mechanism; `str()` is for the broker's log at DEBUG."""


class AuthenticationRefused(Exception):
    """The exchange failed, and the client reads this text. Kafka's SaslAuthenticationException."""


class TransientFailure(Exception):
    """The exchange failed for a transient reason. The connection closes without an answer, so that the client retries."""


class SaslServer:
    """One exchange. It is complete once `authorization_id`, the name of the principal, is not None."""

    __slots__ = ("authorization_id", "credential_expires_ms", "token_authenticated")

    def __init__(self) -> None:
        self.authorization_id: str | None = None
        self.credential_expires_ms: int | None = None
        """When the client's credential expires, ms since the epoch; None if it does not."""
        self.token_authenticated = False

    def preparation(self, token: bytes) -> Awaitable[None] | None:
        """Work for this token in a thread, to be awaited before `evaluate`; None if there is none."""
        return None

    def evaluate(self, token: bytes) -> bytes | None:
        """The answer to the client's next token; None if the exchange is complete and the client expects no token more.

        Raises InvalidCredentials, AuthenticationRefused and TransientFailure, after which no call follows.
        """
        raise NotImplementedError
