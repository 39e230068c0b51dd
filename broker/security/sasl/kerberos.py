"""Authenticates by Kerberos tickets: the SASL mechanism GSSAPI (RFC 4752), from both sides. Java's GssKrb5Server and GssKrb5Client.

Client and server exchange tokens of the Kerberos library until each has authenticated the other. Then they agree on a security layer. Kafka
has none, so the server offers no layer, and the client accepts that. The contexts are ports of the library; `kerberos_library` implements
them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from ottla.broker.security.sasl.kerberos_names import NoMatchingRule
from ottla.broker.security.sasl.mechanism import InvalidCredentials, SaslServer, TransientFailure
from ottla.config.sasl import GSSAPI
from ottla.protocol.sasl_login import CredentialUnavailable, SaslClient, ServerNotTrusted

NO_LAYER: Final = 1
"""The bit of `no security layer` in the first octet of the last two tokens."""
NO_LAYER_TOKEN: Final = bytes((NO_LAYER, 0, 0, 0))
"""A client's choice: no security layer, and so a buffer of no bytes (RFC 4752, section 3.1)."""
OFFER: Final = bytes((NO_LAYER, 1, 0, 0))
"""A server's offer. Its buffer of 65,536 bytes is for layers, but Java's servers name it without any."""

CLIENT_NOT_YET_VALID: Final = 21
TICKET_NOT_YET_VALID: Final = 33
REPLAY: Final = 34
TRANSIENT: Final = frozenset({CLIENT_NOT_YET_VALID, TICKET_NOT_YET_VALID, REPLAY})
"""Errors of Kerberos (RFC 4120, section 7.5.9) after which a client tries again. Kafka's KerberosError."""


class KerberosFailed(Exception):
    """The Kerberos library refused. `code` is the error of RFC 4120, None for another one. The text has no control characters."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class Context(Protocol):
    """The security context of one exchange. All methods raise KerberosFailed."""

    def step(self, token: bytes | None) -> tuple[bytes, bool]:
        """The next token for the peer, which may be empty, and whether the context is complete. A client begins with None."""

    def wrap(self, message: bytes) -> bytes:
        """The message with a signature, once the context is complete."""

    def unwrap(self, token: bytes) -> bytes:
        """The message of a token whose signature is right, once the context is complete."""


class AcceptingContext(Context, Protocol):
    """The context of a server."""

    @property
    def peer(self) -> str:
        """The principal of the client, once the context is complete."""


class _Stage(Enum):
    """The kind of token that comes next."""

    CONTEXT = "a token of the context"
    NOTHING = "an empty token, after the last one of the context"
    LAYER = "the security layer"


class KerberosServer(SaslServer):
    """See the module. The authorization id of a client is ignored, as by Apache Kafka: Java's clients send their own principal there."""

    __slots__ = ("_context", "_name_of", "_stage")

    def __init__(self, context: AcceptingContext, name_of: Callable[[str], str]) -> None:
        """`name_of` returns the short name of a principal, or raises NoMatchingRule."""
        super().__init__()
        self._context = context
        self._name_of = name_of
        self._stage = _Stage.CONTEXT

    def evaluate(self, token: bytes) -> bytes | None:
        """See `SaslServer`. Raises TransientFailure, too."""
        try:
            if self._stage is _Stage.CONTEXT:
                return self._accept(token)
            if self._stage is _Stage.NOTHING:
                if token:
                    raise InvalidCredentials("the client sent data after the security context was complete")
                return self._offer_no_layer()
            self._on_layer(self._context.unwrap(token))
            return None
        except KerberosFailed as failed:
            if failed.code in TRANSIENT:
                raise TransientFailure(str(failed)) from None
            raise InvalidCredentials(str(failed)) from None
        except NoMatchingRule as reason:
            raise InvalidCredentials(str(reason)) from None

    def _accept(self, token: bytes) -> bytes:
        answer, is_complete = self._context.step(token)
        if not is_complete:
            return answer
        if not answer:  # The client wants no proof of the server's identity, as Java's clients, and expects the layers at once.
            return self._offer_no_layer()
        self._stage = _Stage.NOTHING
        return answer

    def _offer_no_layer(self) -> bytes:
        self._stage = _Stage.LAYER
        return self._context.wrap(OFFER)

    def _on_layer(self, chosen: bytes) -> None:
        """The client's choice is an octet with the layer, and three with its buffer; an authorization id follows."""
        if len(chosen) < len(NO_LAYER_TOKEN):
            raise InvalidCredentials("the client's choice of a security layer is too short")
        if not chosen[0] & NO_LAYER:
            raise InvalidCredentials(f"the client asks for the security layer {chosen[0]}, which is not offered")
        self.authorization_id = self._name_of(self._context.peer)


class KerberosClient(SaslClient):
    """See the module. Its first steps may ask the KDC for tickets."""

    __slots__ = ("_context", "_stage")

    may_block = True

    def __init__(self, context: Context) -> None:
        super().__init__(GSSAPI)
        self._context = context
        self._stage = _Stage.CONTEXT

    def first(self) -> bytes:
        """See `SaslClient`. Raises CredentialUnavailable without a ticket for the server."""
        try:
            return self._step(None)
        except KerberosFailed as failed:
            raise CredentialUnavailable(str(failed)) from None

    def answer(self, challenge: bytes) -> bytes | None:
        """See `SaslClient`."""
        try:
            if self._stage is _Stage.CONTEXT:
                return self._step(challenge)
            if self._stage is _Stage.LAYER:
                return self._choose(self._context.unwrap(challenge))
        except KerberosFailed as failed:
            raise ServerNotTrusted(str(failed)) from None
        if challenge:
            raise ServerNotTrusted("it sent a token after the last one")
        return None

    def _step(self, token: bytes | None) -> bytes:
        answer, is_complete = self._context.step(token)
        if is_complete:
            self._stage = _Stage.LAYER
        return answer

    def _choose(self, offered: bytes) -> bytes:
        if len(offered) != len(NO_LAYER_TOKEN):
            raise ServerNotTrusted("its offer of security layers is malformed")
        if not offered[0] & NO_LAYER:
            raise ServerNotTrusted("it demands a security layer, which Kafka does not have")
        self._stage = _Stage.NOTHING
        return self._context.wrap(NO_LAYER_TOKEN)
