"""Tracks the authentication of one connection: the expected request, the principal, and the time of the next authentication.

Kafka's SaslServerAuthenticator without its network part (KIP-43, KIP-152, KIP-368). A connection of a SASL listener owns one, as
`client.sasl`. `ottla.broker.serving.authentication` lets only expected requests pass; the handlers of SaslHandshake and SaslAuthenticate
call `on_handshake` and `on_token`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla.broker.security.principals import USER_TYPE, Principal, UnusablePrincipal
from ottla.broker.security.sasl.mechanism import AuthenticationRefused, InvalidCredentials, SaslServer, TransientFailure
from ottla.config.sasl import GSSAPI

MIN_REAUTHENTICATION_INTERVAL_NS: Final = 1_000_000_000
"""Shortest time between two authentications of one connection, ns; as in Apache Kafka."""
MAX_TEXT: Final = 8000
"""Longest error text for a client and for the log, characters: names in it come from the client, and a string of the protocol has 32,767
bytes."""


class OfferedMechanism(NamedTuple):
    """A mechanism of a listener. `max_reauth_ms`: how long a session may last, ms; 0 without a limit."""

    begin: Callable[[], SaslServer]
    max_reauth_ms: int


class Offer(NamedTuple):
    """The mechanisms of a listener. `names` has the mechanisms in the order in which Apache Kafka lists them."""

    mechanisms: Mapping[str, OfferedMechanism]
    names: Sequence[str]


class State(Enum):
    """The request that the client has to send next."""

    HANDSHAKE_OR_VERSIONS = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKEN = "SaslAuthenticate"
    RAW_TOKEN = "a token without a request header"
    AUTHENTICATED = "any request"
    FAILED = "nothing"


class AuthenticationFailed(Exception):
    """The connection has to be closed. `client_text` is for the client; None if it gets no answer."""

    def __init__(self, reason: str, client_text: str | None) -> None:
        super().__init__(_showable(reason))
        self.client_text = client_text if client_text is None else _showable(client_text)


def _showable(text: str) -> str:
    """The beginning of a text that may repeat a name from a client, without halves of surrogate pairs, which have no encoding."""
    return text[:MAX_TEXT].encode(errors="replace").decode()


class SaslSession:
    """See the module. `on_authenticated` is called with the principal after each completed authentication."""

    __slots__ = ("_began_again_ns", "_changed_mechanism", "_clock_ns", "_mechanism", "_now_ms", "_offer", "_on_authenticated", "_principal",
                 "_server", "expires_ns", "state")  # fmt: skip

    def __init__(
        self, offer: Offer, clock_ns: Callable[[], int], now_ms: Callable[[], int], on_authenticated: Callable[[Principal], None]
    ) -> None:
        """`clock_ns` is monotonic, `now_ms` the time of day."""
        self._offer = offer
        self._clock_ns = clock_ns
        self._now_ms = now_ms
        self._on_authenticated = on_authenticated
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._principal: Principal | None = None
        self._began_again_ns: int | None = None
        self._changed_mechanism: str | None = None
        self.expires_ns: int | None = None
        """When the client has to have authenticated again, by the monotonic clock; None for never."""
        self.state = State.HANDSHAKE_OR_VERSIONS

    @property
    def is_authenticated(self) -> bool:
        """Whether the client may send any request."""
        return self.state is State.AUTHENTICATED

    @property
    def is_expired(self) -> bool:
        """Whether the client should have authenticated again by now."""
        return self.expires_ns is not None and self._clock_ns() > self.expires_ns

    @property
    def mechanisms(self) -> list[str]:
        """The names of the mechanisms that the listener offers."""
        return list(self._offer.names)

    def on_api_versions(self) -> None:
        """The client has got the versions of the APIs, and may not request them again before it is authenticated."""
        if self.state is State.HANDSHAKE_OR_VERSIONS:
            self.state = State.HANDSHAKE

    def begin_again(self) -> bool:
        """Begin a re-authentication, which the next SaslHandshake continues. Returns False if the client may not do so now."""
        now_ns = self._clock_ns()
        if self.expires_ns is None:
            return False
        if self._began_again_ns is not None and now_ns - self._began_again_ns < MIN_REAUTHENTICATION_INTERVAL_NS:
            return False
        self._began_again_ns = now_ns
        self.state = State.HANDSHAKE
        return True

    def on_handshake(self, mechanism: str, *, with_headers: bool) -> bool:
        """Choose a mechanism. `with_headers`: tokens come in SaslAuthenticate. Returns False if the listener does not offer it."""
        offered = self._offer.mechanisms.get(mechanism)
        if offered is None:
            self.state = State.FAILED
            return False
        if self._principal is not None and mechanism != self._mechanism:
            self._changed_mechanism = mechanism
        self._server = offered.begin()
        if self._changed_mechanism is None:
            self._mechanism = mechanism
        self.state = State.TOKEN if with_headers else State.RAW_TOKEN
        return True

    def preparation(self, token: bytes) -> Awaitable[None] | None:
        """Work for this token in a thread, to be awaited before `on_token`; None if there is none."""
        return None if self._server is None or self._changed_mechanism is not None else self._server.preparation(token)

    def begin_without_handshake(self) -> bool:
        """Begin GSSAPI for a client from before Kafka 0.10, whose first frame is a token. Returns False if the listener does not offer
        it."""
        return GSSAPI in self._offer.mechanisms and self.on_handshake(GSSAPI, with_headers=False)

    def on_token(self, token: bytes) -> tuple[bytes | None, int]:
        """The server's token, and the lifetime of the session in ms, 0 for no limit or no session yet. Raises AuthenticationFailed.

        The token is None if the client expects none: without request headers it gets no answer then.
        """
        server = self._server
        if server is None:
            raise RuntimeError(f"a token in the state {self.state.name}")
        try:
            if self._changed_mechanism is not None:
                raise AuthenticationFailed(
                    f"SASL mechanism '{self._changed_mechanism}' requested by client is not supported for re-authentication of "
                    f"mechanism '{self._mechanism}'",
                    None,
                )
            answer = server.evaluate(token)
            if server.authorization_id is None:
                return answer, 0
            return answer, self._complete(server, server.authorization_id)
        except AuthenticationFailed:
            self.state = State.FAILED
            raise
        except AuthenticationRefused as refused:
            self.state = State.FAILED
            raise AuthenticationFailed(str(refused), str(refused)) from None
        except TransientFailure as failed:
            self.state = State.FAILED
            raise AuthenticationFailed(f"Authentication by {self._mechanism} failed for now: {failed}", None) from None
        except (InvalidCredentials, UnusablePrincipal) as invalid:
            during = "authentication" if self._principal is None else "re-authentication"
            self.state = State.FAILED
            text = f"Authentication failed during {during} due to invalid credentials with SASL mechanism {self._mechanism}"
            raise AuthenticationFailed(f"{text}: {invalid}", text) from None

    def _complete(self, server: SaslServer, name: str) -> int:
        """Begin the session of an authenticated client. Returns its lifetime in ms. Raises AuthenticationFailed, UnusablePrincipal."""
        principal = Principal(USER_TYPE, name, server.token_authenticated)
        principal.check()
        if self._principal is not None and principal != self._principal:
            before = f"{self._principal.principal_type}.{self._principal.name}"
            text = f"Cannot change principals during re-authentication from {before}: {principal.principal_type}.{principal.name}"
            raise AuthenticationFailed(text, text)
        self._principal = principal
        self._server = None
        self.state = State.AUTHENTICATED
        lifetime_ms = self._lifetime_ms(server)
        self.expires_ns = None if lifetime_ms is None else self._clock_ns() + lifetime_ms * 1_000_000
        self._on_authenticated(principal)
        return lifetime_ms or 0

    def _lifetime_ms(self, server: SaslServer) -> int | None:
        bounds = []
        if server.credential_expires_ms is not None:
            bounds.append(server.credential_expires_ms - self._now_ms())
        max_reauth_ms = self._offer.mechanisms[self._mechanism].max_reauth_ms
        if max_reauth_ms > 0:
            bounds.append(max_reauth_ms)
        return max(0, min(bounds)) if bounds else None
