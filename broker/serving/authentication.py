"""Accepts only the requests that a client of a SASL listener may send before it is authenticated, and ends expired sessions.

One `AuthenticationHandler` is the first handler of each connection of a SASL listener. It passes expected requests to the dispatcher. When
the client is authenticated, the connection's handler becomes the dispatcher, unless the session has a limited lifetime.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import TYPE_CHECKING, Final

from ottla.broker.network.descriptors import files_for_connections
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Pending
from ottla.broker.request.last_answer import last_answer
from ottla.broker.request.malformed import name_of
from ottla.broker.security.sasl.session import AuthenticationFailed, Offer, SaslSession, State
from ottla.config.keys.network import MAX_CONNECTIONS, QUEUED_MAX_REQUEST_BYTES
from ottla.config.keys.own import OTTLA_AUTHENTICATION_TIMEOUT_MS
from ottla.config.keys.security import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors import fields
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.broker.network.authentication_counts import AuthenticationCounts
    from ottla.broker.network.connection import Connection
    from ottla.broker.security.principals import Principal
    from ottla.broker.serving.dispatch import Dispatcher
    from ottla.config.broker import BrokerConfig
    from ottla.config.broker_properties import BrokerProperties

logger = logging.getLogger(__name__)

UNAUTHENTICATED_DIVISOR: Final = 4
"""The part of the possible connections that clients may take on a listener before they authenticate; the oldest one leaves for a newer one.
`max.connections`, of the broker and of the listener, and the limit of open files bound the connections."""

MAX_HELD_BYTES: Final = 64 * 1024 * 1024
"""Received bytes, of unfinished requests and client ids, that all clients of a listener may hold before they authenticate; less if
`queued.max.request.bytes` is less. The client that has waited longest leaves for the others."""

GSS_TOKEN: Final = 0x60
"""The first byte of a client's first token of GSSAPI (RFC 2743, section 3.1). No request begins with it."""

_EXPECTED: Final = {
    State.HANDSHAKE_OR_VERSIONS: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    State.HANDSHAKE: frozenset({ApiKey.SASL_HANDSHAKE}),
    State.TOKEN: frozenset({ApiKey.SASL_AUTHENTICATE}),
}
"""The APIs that a client may use before it is authenticated."""


class ListenerAuthentication:
    """How the clients of one listener authenticate. Called with each new connection."""

    def __init__(
        self,
        listener_name: str,
        offer: Offer,
        max_receive_size: int,
        config: BrokerConfig,
        dispatcher: Dispatcher,
        clock_ns: Callable[[], int],
        now_ms: Callable[[], int],
        counts: AuthenticationCounts,
    ) -> None:
        """`max_receive_size` bounds the frames of a client until it is authenticated, bytes."""
        self._listener_name = listener_name
        self._properties: BrokerProperties | None = None
        """Those from which `_most_unauthenticated` comes."""
        self._most_unauthenticated = 0
        self.offer = offer
        self.max_receive_size = max_receive_size
        self.config = config
        self.dispatcher = dispatcher
        self.clock_ns = clock_ns
        self.now_ms = now_ms
        self.counts = counts
        self._most_files = files_for_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._unauthenticated: dict[AuthenticationHandler, None] = {}
        """The handlers of clients that have not authenticated, in the order in which they connected."""
        self._held: dict[AuthenticationHandler, int] = {}
        """The memory of these clients, bytes; the one that has received nothing for longest is first."""
        self._held_bytes = 0

    def __call__(self, connection: Connection) -> None:
        """Have the client of a new connection authenticate, in limited time."""
        properties = self.config.current
        if properties is not self._properties:
            self._properties = properties
            most = min(properties[MAX_CONNECTIONS], properties.for_listener(self._listener_name)[MAX_CONNECTIONS], self._most_files)
            self._most_unauthenticated = max(1, most // UNAUTHENTICATED_DIVISOR)
        if len(self._unauthenticated) >= self._most_unauthenticated:
            next(iter(self._unauthenticated)).close("a newer client needs its place, and it has not authenticated")
        self._unauthenticated[AuthenticationHandler(self, connection)] = None

    def on_known(self, handler: AuthenticationHandler) -> None:
        """The client of a connection has authenticated or left."""
        self._unauthenticated.pop(handler, None)
        self.release(handler)

    def hold(self, handler: AuthenticationHandler, size: int) -> None:
        """A client's unfinished request and its client id take `size` bytes now."""
        self.release(handler)
        self._held[handler] = size
        self._held_bytes += size
        queued = self.config[QUEUED_MAX_REQUEST_BYTES]
        most = min(MAX_HELD_BYTES, queued) if queued > 0 else MAX_HELD_BYTES
        while self._held_bytes > most and len(self._held) > 1:
            next(iter(self._held)).close("requests of clients that have not authenticated take too much memory")

    def release(self, handler: AuthenticationHandler) -> None:
        """The client holds nothing."""
        self._held_bytes -= self._held.pop(handler, 0)


class AuthenticationHandler(RequestHandler):
    """See the module."""

    __slots__ = ("_again_since_ns", "_can_authenticate_again", "_connection", "_dispatcher", "_is_known", "_listener", "_loop", "_session",
                 "_timer")  # fmt: skip

    def __init__(self, listener: ListenerAuthentication, connection: Connection) -> None:
        self._listener = listener
        self._dispatcher = listener.dispatcher
        self._connection = connection
        self._session = SaslSession(listener.offer, listener.clock_ns, listener.now_ms, self._on_authenticated)
        self._is_known = False
        self._can_authenticate_again = False
        self._again_since_ns = 0
        """When the client began to authenticate again, by the monotonic clock."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(listener.config[OTTLA_AUTHENTICATION_TIMEOUT_MS] / 1000, self._on_timeout)
        connection.client.sasl = self._session
        connection.client.on_lost = self._on_lost
        connection.exchange_handler(self, listener.max_receive_size)

    def handle(self, frame: memoryview, connection: Connection) -> Answer:
        """See `RequestHandler`."""
        if not self._is_known:
            self._listener.release(self)
        state = self._state_at(frame)
        if state is State.AUTHENTICATED:
            return self._handle_authenticated(frame, connection)
        api_key, version = (fields.int16(frame, 0), fields.int16(frame, 2)) if len(frame) >= 4 else (-1, 0)
        if state is State.RAW_TOKEN:
            answer = self._on_raw_token(bytes(frame))
        elif api_key in _EXPECTED.get(state, ()):
            self._can_authenticate_again = state is State.TOKEN and version > 0
            answer = self._dispatcher.handle(frame, connection)
        else:
            answer = self._refuse(frame, state)
        if self._session.state is State.FAILED and state is not State.FAILED:
            self._listener.counts.on_failure(self._loop.time(), is_again=self._is_known)
        self._hold()
        return answer

    def _state_at(self, frame: memoryview) -> State:
        """The state in which a frame is judged: one without SaslHandshake is a token if it looks so."""
        session = self._session
        if session.state is State.HANDSHAKE_OR_VERSIONS and len(frame) >= 2 and fields.int16(frame, 0) >> 8 == GSS_TOKEN:
            session.begin_without_handshake()
        return session.state

    def _handle_authenticated(self, frame: memoryview, connection: Connection) -> Answer:
        """Ends an expired session, unless the client begins to authenticate again."""
        session = self._session
        if len(frame) >= 2 and fields.int16(frame, 0) == ApiKey.SASL_HANDSHAKE and session.begin_again():
            self._again_since_ns = self._listener.clock_ns()
            connection.exchange_handler(self, self._listener.max_receive_size)
        elif session.is_expired:
            self._listener.counts.expired_connections_killed_count += 1
            connection.offend("the session has expired and the client has not authenticated again")
            return CLOSE
        return self._dispatcher.handle(frame, connection)

    def is_urgent(self, view: memoryview, begin: int, end: int, connection: Connection) -> bool:
        """Authentication never waits for the requests of clients; later requests are judged by the dispatcher."""
        return not self._session.is_authenticated or self._dispatcher.is_urgent(view, begin, end, connection)

    def on_kept(self, connection: Connection) -> None:
        """See `RequestHandler`."""
        self._hold()

    def _hold(self) -> None:
        """Count the bytes that are kept for a client that has not authenticated."""
        client_id = self._connection.client.client_id_bytes or b""
        if not self._is_known and (size := self._connection.kept_bytes + len(client_id)):
            self._listener.hold(self, size)

    def on_bad_length(self, connection: Connection) -> None:
        """Counts as a failure to authenticate, until the client is authenticated."""
        if self._session.state not in (State.AUTHENTICATED, State.FAILED):
            self._listener.counts.on_failure(self._loop.time(), is_again=self._is_known)

    def may_follow_appends(self, view: memoryview, begin: int, end: int) -> bool:
        """See `RequestHandler`."""
        return self._session.is_authenticated and self._dispatcher.may_follow_appends(view, begin, end)

    def takes_empty(self) -> bool:
        """See `RequestHandler`."""
        return self._session.state is State.RAW_TOKEN

    def _on_authenticated(self, principal: Principal) -> None:
        connection = self._connection
        client = connection.client
        if client.on_lost == self._on_lost:
            client.on_lost = None
        self._timer.cancel()
        self._listener.on_known(self)
        client.principal = principal
        connection.access.forget()
        counts = self._listener.counts
        if self._is_known:
            counts.on_success_again(self._loop.time(), (self._listener.clock_ns() - self._again_since_ns) / 1e6)
        else:
            counts.on_success(self._loop.time(), can_authenticate_again=self._can_authenticate_again)
        self._is_known = True
        if self._session.expires_ns is None:
            client.sasl = None
            connection.exchange_handler(self._dispatcher)  # without a detour for each request
        else:
            connection.exchange_handler(self)
        logger.debug("%s: authenticated as %s", client.connection_id, principal)

    def _on_raw_token(self, token: bytes) -> Answer:
        """Answers a token that came without a request header, after SaslHandshake 0. A failure closes the connection without an answer.

        The first use of a delegation token waits for a thread, as in SaslAuthenticate.
        """
        preparation = self._session.preparation(token)
        if preparation is None:
            return self._answer_raw(token)
        pending = Pending()
        task = self._loop.create_task(self._answer_after(preparation, token, pending))

        def cancel() -> None:
            """Ends the task, to which the loop has only a weak reference."""
            task.cancel()

        pending.on_closed = cancel
        return pending

    async def _answer_after(self, preparation: Awaitable[None], token: bytes, pending: Pending) -> None:
        await preparation
        answer = self._answer_raw(token)
        assert isinstance(answer, bytes)  # a first message with prepared work is not refused
        pending.complete(answer)

    def _answer_raw(self, token: bytes) -> Answer:
        try:
            answer, _ = self._session.on_token(token)
        except AuthenticationFailed as failed:
            self._connection.offend(f"authentication failed: {failed}")
            return last_answer(self._delay_ms)
        return NO_RESPONSE if answer is None else answer

    def _refuse(self, frame: memoryview, state: State) -> Answer:
        """Closes the connection, after an error when tokens are expected."""
        self._connection.offend(f"unexpected {name_of(frame)} during authentication; expected is {state.value}")
        self._session.state = State.FAILED
        if state is not State.TOKEN:
            return last_answer(self._delay_ms)
        return last_answer(self._delay_ms, self._dispatcher.error_answer(frame, ErrorCode.ILLEGAL_SASL_STATE))

    @property
    def _delay_ms(self) -> int:
        return self._listener.config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS]

    def _on_lost(self) -> None:
        """Leaves no cycle of references behind."""
        self._timer.cancel()
        self._listener.on_known(self)
        self._connection.client.sasl = None
        self._connection.exchange_handler(self._dispatcher)

    def close(self, reason: str) -> None:
        """Close the connection of a client that has not authenticated."""
        connection = self._connection
        self._on_lost()
        if connection.was_made:
            connection.offend(reason)
            connection.abort()

    def _on_timeout(self) -> None:
        self.close("the client has not authenticated in time")
