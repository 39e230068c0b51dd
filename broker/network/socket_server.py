"""Runs the network floor of a broker: listeners, processors, the request channel, and their limits.

`broker.server` starts it with the end points and the handler, and stops it in two steps: `drain` (no new connections, no new requests, what
is owed is answered) and `close` (whatever is left goes). Any number of servers may live in one process, one after the other or together.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.network.acceptor import Acceptor, bind
from broker.network.connection import Connection
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.handler import RequestHandler
from broker.network.limits import NetworkLimits
from broker.network.offenders import Offenders
from broker.network.processor import Processor
from broker.network.request_channel import RequestChannel
from broker.network.throttle import Throttle
from broker.security.authorizer import Authorizer
from config.listeners import EndPoint, SecurityProtocol

logger = logging.getLogger(__name__)

MAX_IDLE_CHECK_SECONDS: Final = 10.0
MIN_IDLE_CHECK_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 2.0
"""How long a stopping broker waits for a client that takes nothing of its answer."""
FIRST_PAUSE_SECONDS: Final = 0.001
LAST_PAUSE_SECONDS: Final = 0.05
"""Between looks whether answers have arrived; they grow from the first to the last."""


class SocketServer:
    """See the module. `limits` may be changed while it runs: by `apply`, or in place followed by `apply(limits)`."""

    def __init__(
        self,
        limits: NetworkLimits,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        tls: Mapping[str, ssl.SSLContext] | None = None,
    ) -> None:
        """`tls` has the context of every listener whose security protocol is SSL or SASL_SSL."""
        self._tls = tls or {}
        self._loop = asyncio.get_running_loop()
        self._clock_ns = clock_ns
        self._offenders = Offenders(logger.warning)
        self._acceptors: dict[str, Acceptor] = {}
        self._retired: list[Processor] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._handler: RequestHandler | None = None
        self._authorizer: Authorizer | None = None
        self._throttle: Throttle | None = None
        self.limits = limits
        self.processors: list[Processor] = []
        self.quotas = ConnectionQuotas(limits, self._loop.time())
        self.request_channel = RequestChannel(
            limits.num_io_threads, limits.queued_max_requests, limits.queued_max_request_bytes, self._loop.call_soon
        )

    async def start(
        self,
        endpoints: Iterable[EndPoint],
        handler: RequestHandler,
        protected_listener: str | None = None,
        authorizer: Authorizer | None = None,
        throttle: Throttle | None = None,
        *,
        accepting: bool = True,
    ) -> None:
        """Bind all end points, then accept on all; unless `accepting`, only once `accept` is called.

        Raises BindFailed, and then none is bound. `protected_listener` is the inter-broker listener when there are others.
        Clients may do what `authorizer` allows, and as much as `throttle` does; without these, everything.
        """
        self._handler = handler
        self._authorizer = authorizer
        self._throttle = throttle
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
        """Begin to accept connections; those that came since the ports were bound wait in the kernel's backlog."""
        for acceptor in self._acceptors.values():
            acceptor.start()
        self._check_idle()

    async def add_listener(self, endpoint: EndPoint) -> None:
        """A listener was added while the broker runs. Raises BindFailed."""
        (await self._bind(endpoint)).start()

    def remove_listener(self, listener_name: str) -> None:
        """A listener was removed: it accepts no more, and its connections close."""
        acceptor = self._acceptors.pop(listener_name)
        acceptor.close()
        for connection in self.connections():
            if connection.client.listener_name == listener_name:
                connection.close()

    @property
    def bound(self) -> dict[str, EndPoint]:
        """The end points by listener name, with the ports the kernel gave."""
        return {
            name: EndPoint(name, acceptor.endpoint.host, acceptor.port, acceptor.endpoint.security_protocol)
            for name, acceptor in self._acceptors.items()
        }

    @property
    def acceptors(self) -> list[Acceptor]:
        """One per listener."""
        return list(self._acceptors.values())

    def connections(self) -> list[Connection]:
        """All of them, in no order."""
        return [connection for processor in (*self.processors, *self._retired) for connection in processor.connections]

    def apply(self, limits: NetworkLimits) -> None:
        """The limits changed: those that Kafka changes dynamically take effect at once."""
        self.limits = self.quotas.limits = limits
        self.request_channel.resize(limits.num_io_threads)
        if self._handler is not None:
            self._set_processors(limits.num_network_threads)
        for acceptor in self._acceptors.values():
            acceptor.limits = limits
            acceptor.resume()

    def stop_accepting(self) -> None:
        """No new connections from now on."""
        for acceptor in self._acceptors.values():
            acceptor.close()

    async def drain(self, timeout_seconds: float, patience_seconds: float = PATIENCE_SECONDS) -> bool:
        """Accept nothing, handle no new request, answer what is done or being done, and close. False when some are left after the time.

        A client that takes nothing of an answer for `patience_seconds` is not waited for any longer.
        """
        self.stop_accepting()
        await self._settle()
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
                    logger.info("%s takes no answer; closing the connection", connection.client.connection_id)
                    connection.abort()
        return await self._deliver(left)

    async def _deliver(self, timeout_seconds: float) -> bool:
        """Close connections as their answers arrive; whether none is left. Nothing tells when bytes arrive: it has to be asked for."""
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
        """Close whatever is left, now. Harmless when done twice."""
        self.stop_accepting()
        await self._settle()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for connection in self.connections():
            connection.abort()
        await self._wait_until_empty(5.0)
        self._offenders.summarize()

    async def _settle(self) -> None:
        for acceptor in self._acceptors.values():
            await acceptor.settle()

    async def _wait_until_empty(self, timeout_seconds: float) -> bool:
        if not self.connections():
            return True
        self._emptied = self._loop.create_future()
        done, _ = await asyncio.wait([self._emptied], timeout=timeout_seconds)
        self._emptied = None
        return bool(done)

    async def _bind(self, endpoint: EndPoint) -> Acceptor:
        tls = self._tls.get(endpoint.listener_name)
        if tls is None and endpoint.security_protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL):
            raise ValueError(f"listener {endpoint.connection_string} has no TLS context: it would speak plaintext")
        sock = await bind(endpoint, self.limits, self._loop)
        acceptor = Acceptor(endpoint, sock, self.processors, self.quotas, self.limits, self._loop, self._report, self._close_most_idle, tls)
        self._acceptors[endpoint.listener_name] = acceptor
        return acceptor

    def _set_processors(self, count: int) -> None:
        handler = self._handler
        if handler is None:
            raise RuntimeError("processors need a handler: start the server first")
        while len(self.processors) < count:
            self.processors.append(
                Processor(
                    self._loop,
                    handler,
                    self.request_channel,
                    self.limits,
                    self._clock_ns,
                    self._offenders,
                    self._on_closed,
                    self._authorizer,
                    self._throttle,
                )
            )
        while len(self.processors) > count:
            # It keeps the connections it has; they need not suffer from a smaller number.
            self._retired.append(self.processors.pop())
        self._retired = [processor for processor in self._retired if processor.connections]

    def _on_closed(self, connection: Connection) -> None:
        client = connection.client
        self.quotas.close(client.listener_name, client.client_host)
        for acceptor in self._acceptors.values():
            acceptor.resume()
        if (
            self._emptied is not None
            and not self._emptied.done()
            and not any(each.connections for each in (*self.processors, *self._retired))
        ):
            self._emptied.set_result(None)

    def _close_most_idle(self) -> None:
        """The protected listener accepted beyond max.connections: another one gives up a connection."""
        others = [each for each in self.connections() if each.client.listener_name != self.quotas.protected_listener]
        if others:
            min(others, key=lambda connection: connection.last_active_ns).abort()

    def _report(self, host: str, line: str) -> None:
        self._offenders.report(host, line, self._clock_ns() / 1e9)

    def _check_idle(self) -> None:
        """Expire idle connections, often enough that one lives at most a tenth longer than it may."""
        idle_ms = self.limits.connections_max_idle_ms
        for processor in (*self.processors, *self._retired):
            processor.expire_idle(idle_ms)
        seconds = idle_ms / 10_000 if idle_ms >= 0 else MAX_IDLE_CHECK_SECONDS
        seconds = min(max(seconds, MIN_IDLE_CHECK_SECONDS), MAX_IDLE_CHECK_SECONDS)
        self._idle_timer = self._loop.call_later(seconds, self._check_idle)
