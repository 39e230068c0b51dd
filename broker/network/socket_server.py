"""Runs the network part of a broker: listeners, processors, the request channel, and their limits.

`ottla.broker.server` starts it with end points and handler, and stops it in two steps. `drain` accepts no new connections and requests, and
sends due answers. `close` closes all remaining connections. Any number of servers may live in one process, in sequence or at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.broker.network.acceptor import Acceptor, BeginAuthentication, bind
from ottla.broker.network.authentication_counts import AuthenticationCounts
from ottla.broker.network.connection import Connection
from ottla.broker.network.connection_quotas import ConnectionQuotas
from ottla.broker.network.frame_memory import Level
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.limits import LATE_CHECK_SECONDS, NetworkLimits
from ottla.broker.network.offenders import Offenders
from ottla.broker.network.processor import Processor
from ottla.broker.network.request_channel import RequestChannel
from ottla.broker.process import give_back_freed_memory
from ottla.broker.quotas.throttle import Quotas
from ottla.broker.security.acl_hosts import without_scope
from ottla.broker.security.authorizer import Authorizer
from ottla.config.listeners import EndPoint
from ottla.pauses import begin

if TYPE_CHECKING:
    from ottla.broker.security.tls.listener import ListenerTls

logger = logging.getLogger(__name__)

MAX_IDLE_CHECK_SECONDS: Final = 10.0
MIN_IDLE_CHECK_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 2.0
"""Time that a stopping broker waits for a client that reads nothing of its answer, in seconds."""
FIRST_PAUSE_SECONDS: Final = 0.001
LAST_PAUSE_SECONDS: Final = 0.05
"""Pauses between checks whether answers have arrived, in seconds. They grow from the first to the last."""


class SocketServer:
    """The server of one broker. `limits` may change while it runs: by `apply`, or in place followed by `apply(limits)`."""

    def __init__(
        self,
        limits: NetworkLimits,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock_ns = clock_ns
        self._offenders = Offenders(logger.warning)
        self._acceptors: dict[str, Acceptor] = {}
        self._is_stopping = False
        self._former: list[Processor] = []
        """Processors without new connections, for the next increase of their number."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._late_timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._authentication: Callable[[EndPoint, AuthenticationCounts], BeginAuthentication] | None = None
        self._handler: RequestHandler | None = None
        self._authorizer: Authorizer | None = None
        self._client_quotas: Quotas | None = None
        self._tls_of: Callable[[EndPoint], ListenerTls] | None = None
        self._kept = Level()
        self.limits = limits
        self.processors: list[Processor] = []
        self.quotas = ConnectionQuotas(limits, self._loop.time())
        self.request_channel = RequestChannel(
            limits.num_io_threads,
            limits.queued_max_requests,
            limits.queued_max_request_bytes,
            self._loop.call_soon,
            limits.large_requests_max_bytes,
            clock_ns,
        )

    async def start(
        self,
        endpoints: Iterable[EndPoint],
        handler: RequestHandler,
        protected_listener: str | None = None,
        authorizer: Authorizer | None = None,
        client_quotas: Quotas | None = None,
        authentication: Callable[[EndPoint, AuthenticationCounts], BeginAuthentication] | None = None,
        *,
        accepting: bool = True,
        tls_of: Callable[[EndPoint], ListenerTls] | None = None,
    ) -> None:
        """Bind all end points, and accept on all. Without `accepting`, accept only after a call of `accept`.

        Raises BindFailed, and then none is bound. `protected_listener` is the inter-broker listener when there are others. `authorizer` and
        `client_quotas` limit clients; without them, everything is allowed. `authentication` returns how clients of a SASL listener
        authenticate, from the counts that it has to keep. `tls_of` builds the TLS of SSL and SASL_SSL listeners. The errors of both are
        passed on.
        """
        self._tls_of = tls_of
        self._handler = handler
        self._authentication = authentication
        self._authorizer = authorizer
        self._client_quotas = client_quotas
        self.quotas.protected_listener = protected_listener
        self._set_processors(self.limits.num_network_threads)
        try:
            for endpoint in endpoints:
                await self._bind(endpoint)
        except BaseException:
            for acceptor in self._acceptors.values():
                acceptor.close()
            self._acceptors.clear()
            raise
        if accepting:
            self.accept()

    def accept(self) -> None:
        """Begin to accept. Connections that came since the ports were bound wait in the kernel's backlog."""
        for acceptor in self._acceptors.values():
            acceptor.start()
        begin(self._expire_idle())
        begin(self._end_late())

    async def add_listener(self, endpoint: EndPoint) -> None:
        """Add a listener while the broker runs. Raises BindFailed, ValueError once the broker stops, and the errors of `authentication` and
        `tls_of`."""
        acceptor = await self._bind(endpoint)
        if self._is_stopping:
            del self._acceptors[endpoint.listener_name]
            acceptor.close()
            raise ValueError("the broker stops")
        acceptor.start()

    def remove_listener(self, listener_name: str) -> None:
        """Stop accepting on a listener, and close its connections, also those that are being opened."""
        acceptor = self._acceptors.pop(listener_name)
        acceptor.close()
        acceptor.cancel_opening()
        for connection in self.connections():
            if connection.client.listener_name == listener_name:
                connection.close()

    @property
    def bound(self) -> dict[str, EndPoint]:
        """The end points by listener name, with the ports that the kernel assigned."""
        return {
            name: EndPoint(name, acceptor.endpoint.host, acceptor.port, acceptor.endpoint.security_protocol)
            for name, acceptor in self._acceptors.items()
        }

    @property
    def acceptors(self) -> list[Acceptor]:
        """The acceptors, one per listener."""
        return list(self._acceptors.values())

    def connections(self) -> list[Connection]:
        """All connections, in arbitrary order."""
        return [connection for processor in (*self.processors, *self._former) for connection in processor.connections]

    def apply(self, limits: NetworkLimits) -> None:
        """Apply changed limits. Those that are dynamic in Kafka take effect at once."""
        self.limits = self.quotas.limits = limits
        self.request_channel.resize(limits.num_io_threads)
        if self._handler is not None:
            self._set_processors(limits.num_network_threads)
        for acceptor in self._acceptors.values():
            acceptor.limits = limits
            acceptor.resume()

    def stop_accepting(self) -> None:
        """Accept no new connections from now on, and add no listeners."""
        self._is_stopping = True
        for acceptor in self._acceptors.values():
            acceptor.close()

    async def drain(self, timeout_seconds: float, patience_seconds: float = PATIENCE_SECONDS) -> bool:
        """Accept and handle nothing new, answer requests that are done or in progress, and close. Returns False if connections are left.

        A client that reads nothing of its answer for `patience_seconds` is not waited for.
        """
        self.stop_accepting()
        await self._wait_for_opening()
        for connection in self.connections():
            connection.drain()
        deadline = self._loop.time() + timeout_seconds
        while (left := deadline - self._loop.time()) > patience_seconds:
            owed = {connection: connection.undelivered for connection in self.connections()}
            if await self._deliver(patience_seconds):
                return True
            for connection in self.connections():
                undelivered = connection.undelivered
                if undelivered and owed.get(connection) == undelivered:
                    logger.info("%s does not read its answer; closing the connection", connection.client.connection_id)
                    connection.abort()
        return await self._deliver(left)

    async def _deliver(self, timeout_seconds: float) -> bool:
        """Close connections once their answers have arrived. Returns whether none is left. Polls, because no event reports the arrival."""
        deadline = self._loop.time() + timeout_seconds
        pause = FIRST_PAUSE_SECONDS
        while (left := deadline - self._loop.time()) > 0:
            if await self._wait_until_empty(min(pause, left)):
                return True
            for connection in self.connections():
                connection.end_drained()
            pause = min(2 * pause, LAST_PAUSE_SECONDS)
        return not self.connections()

    async def close(self) -> None:
        """Close all remaining connections at once. A repeated call does nothing."""
        self.stop_accepting()
        await self._wait_for_opening()
        for timer in (self._idle_timer, self._late_timer):
            if timer is not None:
                timer.cancel()
        for connection in self.connections():
            connection.abort()
        await self._wait_until_empty(5.0)
        self._offenders.summarize()

    async def _wait_for_opening(self) -> None:
        for acceptor in self._acceptors.values():
            await acceptor.wait_for_opening()

    async def _wait_until_empty(self, timeout_seconds: float) -> bool:
        if not self.connections():
            return True
        self._emptied = self._loop.create_future()
        done, _ = await asyncio.wait([self._emptied], timeout=timeout_seconds)
        self._emptied = None
        return bool(done)

    async def _bind(self, endpoint: EndPoint) -> Acceptor:
        tls = None
        authentications = AuthenticationCounts(self._loop.time())
        if endpoint.security_protocol.uses_tls:
            if self._tls_of is None:
                raise ValueError(f"listener {endpoint.connection_string} has no TLS context: it would speak plaintext")
            tls = self._tls_of(endpoint)
        begin_authentication = None
        if endpoint.security_protocol.uses_sasl:
            if self._authentication is None:
                raise ValueError(f"listener {endpoint.connection_string} has no authentication: it would be open to everyone")
            begin_authentication = self._authentication(endpoint, authentications)
        sock = await bind(endpoint, self.limits, self._loop)
        acceptor = Acceptor(
            endpoint,
            sock,
            self.processors,
            self.quotas,
            self.limits,
            self._loop,
            self._report,
            self._close_most_idle,
            self._on_closed,
            tls,
            begin_authentication,
            authentications,
        )
        self._acceptors[endpoint.listener_name] = acceptor
        return acceptor

    def _set_processors(self, count: int) -> None:
        handler = self._handler
        if handler is None:
            raise RuntimeError("processors need a handler: start the server first")
        while len(self.processors) < count:
            self.processors.append(self._former.pop() if self._former else self._new_processor(handler))
        while len(self.processors) > count:
            # It keeps its connections, so that a smaller number does not disturb them. It gets those that are being opened, too.
            self._former.append(self.processors.pop())

    def _new_processor(self, handler: RequestHandler) -> Processor:
        return Processor(
            self._loop,
            handler,
            self.request_channel,
            self.limits,
            self._clock_ns,
            self._offenders,
            self._on_closed,
            self._authorizer,
            self._client_quotas,
        )

    def _on_closed(self, connection: Connection) -> None:
        """A connection was lost, or could not be opened. There is room for another one, on any listener."""
        client = connection.client
        self.quotas.close(client.listener_name, without_scope(client.client_host))
        for acceptor in self._acceptors.values():
            acceptor.resume()
        if (
            self._emptied is not None
            and not self._emptied.done()
            and not any(each.connections for each in (*self.processors, *self._former))
        ):
            self._emptied.set_result(None)

    def _close_most_idle(self) -> None:
        """Close the most idle connection of another listener, because the protected one accepted beyond max.connections."""
        connections = self.connections()
        remaining = [each for each in connections if not each.is_closed]
        if self.quotas.total - (len(connections) - len(remaining)) <= self.limits.max_connections:
            return  # those that were closed, and are not lost yet, make room enough
        others = [each for each in remaining if each.client.listener_name != self.quotas.protected_listener]
        if others:
            min(others, key=lambda connection: connection.last_active_ns).abort()

    def _report(self, host: str, line: str) -> None:
        self._offenders.report(host, line, self._clock_ns() / 1e9)

    async def _expire_idle(self) -> None:
        """Expires idle connections, often enough that none lives more than a tenth longer than allowed."""
        idle_ms = self.limits.connections_max_idle_ms
        seconds = idle_ms / 10_000 if idle_ms >= 0 else MAX_IDLE_CHECK_SECONDS
        seconds = min(max(seconds, MIN_IDLE_CHECK_SECONDS), MAX_IDLE_CHECK_SECONDS)
        try:
            for processor in (*self.processors, *self._former):
                await processor.expire_idle(idle_ms)
        finally:  # an error must not end the checks
            if not self._is_stopping:
                self._idle_timer = self._loop.call_later(seconds, lambda: begin(self._expire_idle()))

    async def _end_late(self) -> None:
        """Has requests that arrive slowly or wait for their client, and answers that are not read, make room for others.

        The system gets what many of the requests took.
        """
        try:
            for processor in (*self.processors, *self._former):
                await processor.end_late()
            await self.request_channel.unread.end_stalled()
            if self._kept.has_fallen(self.request_channel.unhandled_bytes):
                self._loop.run_in_executor(None, give_back_freed_memory)
        finally:
            if not self._is_stopping:
                self._late_timer = self._loop.call_later(LATE_CHECK_SECONDS, lambda: begin(self._end_late()))
