"""Accepts the connections of one listener and distributes them over the processors.

It accepts by itself instead of using `loop.create_server`, because it must be able to stop: while max.connections is reached, or
connections come faster than max.connection.creation.rate, clients wait in the backlog of the socket.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.broker.network.authentication_counts import AuthenticationCounts
from ottla.broker.network.connection import Connection
from ottla.broker.network.descriptors import duplicate
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.offenders import describe_handshake
from ottla.broker.network.receive_buffer import may_grow, set_receive_buffer
from ottla.broker.network.recent import Recent
from ottla.broker.process import keep_freed_memory, map_tls_buffers
from ottla.broker.security.client import Client
from ottla.broker.security.principals import UnusablePrincipal
from ottla.broker.security.tls.cipher_suites import iana_name
from ottla.broker.security.tls.der import MalformedDer
from ottla.broker.security.tls.mapping_rules import NoMatchingRule
from ottla.config.listeners import EndPoint

if TYPE_CHECKING:
    from ottla.broker.network.connection_quotas import ConnectionQuotas
    from ottla.broker.network.limits import NetworkLimits
    from ottla.broker.network.processor import Processor
    from ottla.broker.security.tls.listener import ListenerTls

BeginAuthentication: TypeAlias = Callable[[Connection], None]
"""Gives a new connection of a SASL listener the handler that authenticates its client."""

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN: Final = 64
PAUSE_AFTER_ERROR_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 60.0
"""Pause after a log line about open files before the next one, in seconds."""
MAX_TOO_EARLY: Final = 1000
"""Early connections that are kept open for a moment before they are closed. Further ones are closed at once."""
HURRIED_SECONDS: Final = 2.0
"""Time that a TLS handshake may take while all handshakes are in use and more clients wait, in seconds."""
SHUTDOWN_SECONDS: Final = 5.0
"""Time that a client has to answer the end of a TLS connection, in seconds."""
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class BindFailed(Exception):
    """The address of a listener is not available."""

    def __init__(self, endpoint: EndPoint, error: OSError) -> None:
        super().__init__(
            f"listener {endpoint.connection_string} cannot be bound: {error.strerror or error}; "
            f"{_remedy(endpoint, error)} change `listeners`"
        )
        self.endpoint = endpoint


def _remedy(endpoint: EndPoint, error: OSError) -> str:
    """The remedy besides another address, as the beginning of a sentence."""
    if error.errno == errno.EADDRINUSE:
        return "stop what uses the address or"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"give the process the capability CAP_NET_BIND_SERVICE, without which it may not listen at port {endpoint.port}, or"
    return "let this host have the address or"


async def bind(endpoint: EndPoint, limits: NetworkLimits, loop: asyncio.AbstractEventLoop) -> socket.socket:
    """A listening socket. An empty host stands for all interfaces, IPv6 and IPv4. Raises BindFailed."""
    sock = await _bound(endpoint, limits, loop)
    try:
        sock.listen(limits.socket_listen_backlog_size)
    except OSError as error:
        sock.close()
        raise BindFailed(endpoint, error) from error
    return sock


async def check_addresses(endpoints: Iterable[EndPoint], limits: NetworkLimits, loop: asyncio.AbstractEventLoop) -> None:
    """Find out whether all end points can be bound now. No client can connect meanwhile. Raises BindFailed."""
    for endpoint in endpoints:
        (await _bound(endpoint, limits, loop)).close()


async def _bound(endpoint: EndPoint, limits: NetworkLimits, loop: asyncio.AbstractEventLoop) -> socket.socket:
    try:
        if is_address(endpoint.host):
            # An address needs no resolver, which would start a thread.
            return _bind_to(socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET, (endpoint.host, endpoint.port), limits)
        if endpoint.host:
            found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            return _bind_to(found[0][0], (found[0][4][0], endpoint.port), limits)
        try:
            return _bind_to(socket.AF_INET6, ("::", endpoint.port), limits)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
            return _bind_to(socket.AF_INET, ("0.0.0.0", endpoint.port), limits)
    except OSError as error:
        raise BindFailed(endpoint, error) from error


def is_address(host: str) -> bool:
    """Whether the host is an address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _bind_to(family: int, address: tuple[str | int, ...], limits: NetworkLimits) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        if limits.socket_receive_buffer_is_final and limits.socket_receive_buffer_bytes != -1:
            # Before listen, so that accepted sockets inherit it and the window is negotiated accordingly.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.socket_receive_buffer_bytes)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def counted_host(address: tuple[Any, ...]) -> str:
    """The address that quotas count, without an interface: the IPv4 address for an IPv4 client of an IPv6 socket."""
    host: str = address[0]
    return host.removeprefix("::ffff:")


def shown_host(address: tuple[Any, ...]) -> str:
    """The address that Java shows: a link-local one ends with the number of the interface on which the client is."""
    scope = address[3] if len(address) > 3 else 0
    return f"{counted_host(address)}%{scope}" if scope else counted_host(address)


_NOBODY: Final = RequestHandler()
"""The handler of a client that has not begun to authenticate; a request closes the connection."""


class AcceptedConnection(Connection, asyncio.BufferedProtocol):
    """A connection for the event loop. Some loops check for this base class of protocols with their own buffer."""

    __slots__ = ("_begin_authentication",)

    def __init__(
        self, processor: Processor, client: Client, sock: socket.socket | None, begin_authentication: BeginAuthentication | None
    ) -> None:
        super().__init__(processor, client, sock)
        self._begin_authentication = begin_authentication
        if begin_authentication is not None:
            self.exchange_handler(_NOBODY)  # in case authentication cannot begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the client of a SASL listener authenticate."""
        super().connection_made(transport)
        if self._begin_authentication is not None:
            self._begin_authentication(self)


class TlsConnection(AcceptedConnection):
    """A connection over TLS. Without SASL its principal comes from the client's certificate."""

    __slots__ = ("_counts", "_loop", "_tls", "protocol", "suite")

    def __init__(
        self,
        processor: Processor,
        client: Client,
        tls: ListenerTls,
        begin_authentication: BeginAuthentication | None,
        counts: AuthenticationCounts,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        # Everything has to go through the transport, so there is no socket.
        super().__init__(processor, client, None, begin_authentication)
        self._tls = tls
        self._counts = counts
        self._loop = loop
        self.protocol = ""
        """The version of TLS, as TLSv1.3."""
        self.suite = ""
        """The IANA name of the cipher suite."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin after the handshake."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        name, self.protocol, _ = tls.cipher()
        self.suite = iana_name(name)
        if self._begin_authentication is not None:
            return
        try:
            self.client.principal = self._tls.principal_of(tls.getpeercert(binary_form=True))
        except (NoMatchingRule, MalformedDer, UnusablePrincipal) as reason:
            self._counts.on_failure(self._loop.time(), is_again=False)
            self.offend(f"the client's certificate has no principal: {reason}")
            self.abort()
        else:
            self._counts.on_success(self._loop.time(), can_authenticate_again=False)


class Acceptor:
    """Accepts for one listener. `port` is the bound port."""

    __slots__ = (
        "_accepting",
        "_begin_authentication",
        "_closed",
        "_handshake_timer",
        "_index",
        "_loop",
        "_make_room",
        "_most_files",
        "_on_closed",
        "_opening",
        "_processors",
        "_quiet_until",
        "_quotas",
        "_report",
        "_retry",
        "_sock",
        "_started",
        "_too_early",
        "_turn",
        "accepts",
        "authentications",
        "endpoint",
        "ip_throttles",
        "limits",
        "port",
        "throttles",
        "tls",
    )

    def __init__(
        self,
        endpoint: EndPoint,
        sock: socket.socket,
        processors: list[Processor],
        quotas: ConnectionQuotas,
        limits: NetworkLimits,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[str, str], None],
        make_room: Callable[[], None],
        on_closed: Callable[[Connection], None],
        tls: ListenerTls | None,
        begin_authentication: BeginAuthentication | None,
        authentications: AuthenticationCounts,
    ) -> None:
        """`processors` is the server's list, which may change. `report(host, line)` logs at a limited rate. `make_room` closes a connection
        of another listener when there are too many. `on_closed` is called for a connection that could not be opened. `begin_authentication`
        is called with each new connection."""
        self.endpoint = endpoint
        self.limits = limits
        self.port: int = sock.getsockname()[1]
        self.authentications = authentications
        now = loop.time()
        self.accepts = Recent(now)
        self.throttles = Recent(now)
        """Delays of accepting, in ms (max.connection.creation.rate)."""
        self.ip_throttles = Recent(now)
        """Delays before the close of connections that came too early for their address, in ms."""
        self._sock = sock
        self._too_early: set[socket.socket] = set()
        self._processors = processors
        self._quotas = quotas
        self._loop = loop
        self._report = report
        self._make_room = make_room
        self._on_closed = on_closed
        self._begin_authentication = begin_authentication
        self.tls = tls
        """The TLS of new connections; None for plaintext. May be exchanged."""
        self._turn = 0
        self._index = 0
        self._started = False
        self._accepting = False
        self._closed = False
        self._retry: asyncio.TimerHandle | None = None
        self._quiet_until = 0.0
        # A connection's task ends when its transport exists. After that nothing runs per connection.
        self._opening: dict[asyncio.Task[None], float] = {}
        """The tasks with the times of their starts, the oldest first. With TLS these are the handshakes."""
        self._handshake_timer: asyncio.TimerHandle | None = None

    @property
    def accepted(self) -> int:
        """Number of connections that were accepted and kept."""
        return self._turn

    def start(self) -> None:
        """Begin to accept."""
        self._started = True
        self.resume()

    def resume(self) -> None:
        """Accept again, because there may be room. Does nothing before `start`."""
        if self._started and not self._accepting and not self._closed and self._retry is None:
            self._accepting = True
            self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def close(self) -> None:
        """Stop accepting. The kernel resets connections in the backlog."""
        if self._closed:
            return
        self._pause()
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
        self._sock.close()
        for sock in self._too_early:
            sock.close()
        self._too_early.clear()

    def cancel_opening(self) -> None:
        """End, after `close`, the connections that are being opened."""
        for task in self._opening:
            task.cancel()

    async def wait_for_opening(self) -> None:
        """Wait, after `close`, for connections that are being opened, except for TLS handshakes, which are cancelled."""
        if self.tls is not None:
            self.cancel_opening()
        if self._opening:
            await asyncio.wait(self._opening)

    def _pause(self, seconds: float = 0.0) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._sock.fileno())
        if seconds and self._retry is None:
            self._retry = self._loop.call_later(seconds, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self.resume()

    def _on_readable(self) -> None:
        name = self.endpoint.listener_name
        quotas = self._quotas
        for _ in range(ACCEPTS_PER_TURN):
            if not quotas.has_room(name):
                self._pause()  # the server calls resume when a connection is closed
                return
            if not self._may_shake_hands():
                self._pause()  # the end of a handshake calls resume
                return
            delay = quotas.creation_delay(name, self._loop.time())
            if delay > 0:
                self.throttles.add(self._loop.time(), delay * 1000)
                self._pause(delay)
                return
            try:
                self._check_files()
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._wait_for_files(error)
                return
            host = counted_host(address)
            if not quotas.open(name, host):
                sock.close()
                self._report(
                    host,
                    f"rejected a connection from {host} on listener {name}: "
                    f"the address already has the configured maximum of {quotas.limit_of(host)} connections",
                )
                continue
            if (delay := quotas.ip_delay(host, self._loop.time())) > 0:
                quotas.close(name, host)
                self._close_later(sock, host, delay)
                continue
            self._open(sock, address)

    def _check_files(self) -> None:
        """Raises OSError when connections use all files that they may use."""
        os.close(duplicate(self._sock))

    def _wait_for_files(self, error: OSError) -> None:
        if self._loop.time() >= self._quiet_until:
            self._quiet_until = self._loop.time() + QUIET_SECONDS
            logger.error(
                "listener %s: cannot accept: %s; raise the limit of open files or lower max.connections; retrying every %.0f s",
                self.endpoint.listener_name, error.strerror, PAUSE_AFTER_ERROR_SECONDS,
            )  # fmt: skip
        self._pause(PAUSE_AFTER_ERROR_SECONDS)

    def _close_later(self, sock: socket.socket, host: str, delay: float) -> None:
        """Close, after a while, a connection whose address has used up its connection rate (KIP-612)."""
        self.ip_throttles.add(self._loop.time(), delay * 1000)
        self._report(
            host, f"rejected a connection from {host} on listener {self.endpoint.listener_name}: connection_creation_rate is used up"
        )
        if len(self._too_early) >= MAX_TOO_EARLY:
            sock.close()
            return
        self._too_early.add(sock)

        def close() -> None:
            self._too_early.discard(sock)
            sock.close()

        self._loop.call_later(delay, close)

    def _open(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        name = self.endpoint.listener_name
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self.limits.socket_send_buffer_bytes != -1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.socket_send_buffer_bytes)
            if grows := may_grow(self.limits):
                set_receive_buffer(sock, self.limits.socket_receive_buffer_bytes)
            local = sock.getsockname()
        except OSError:
            # The client left already.
            sock.close()
            self._quotas.close(name, counted_host(address))
            return
        host, port = shown_host(address), address[1]
        client = Client(
            f"{shown_host(local)}:{local[1]}-{host}:{port}-{self._index}", host, port, name, self.endpoint.security_protocol.name
        )
        self._index = (self._index + 1) & 0x7FFFFFFF
        self._turn += 1
        self.accepts.add(self._loop.time())
        processor = self._processors[self._turn % len(self._processors)]
        if self.tls is None:
            connection = AcceptedConnection(processor, client, sock, self._begin_authentication)
        else:
            connection = TlsConnection(processor, client, self.tls, self._begin_authentication, self.authentications, self._loop)
        if grows and self.tls is None:
            connection.grow_with_frames(sock)
        task = self._loop.create_task(self._connect(sock, connection))
        self._opening[task] = self._loop.time()
        task.add_done_callback(partial(self._on_opened, sock, connection))
        if self._quotas.is_exceeded():
            self._make_room()

    def _on_opened(self, sock: socket.socket, connection: AcceptedConnection, task: asyncio.Task[None]) -> None:
        """Uncount a connection that could not be opened. Its task may have ended before the first step."""
        del self._opening[task]
        if not connection.was_made:
            sock.close()
            self._on_closed(connection)
        if self.tls is not None:
            self.resume()

    def _may_shake_hands(self) -> bool:
        """Whether another connection may be opened. If not, the oldest handshake gets less time, since silent clients could use up all."""
        if self.tls is None or len(self._opening) < self.limits.tls_handshakes:
            return True
        if self._handshake_timer is None:
            oldest = next(iter(self._opening.values()))
            self._handshake_timer = self._loop.call_at(oldest + HURRIED_SECONDS, self._end_oldest)
        return False

    def _end_oldest(self) -> None:
        self._handshake_timer = None
        if self._accepting or len(self._opening) < self.limits.tls_handshakes:
            return
        task, began = next(iter(self._opening.items()))
        if began + HURRIED_SECONDS <= self._loop.time():
            task.cancel()
        else:
            self._handshake_timer = self._loop.call_at(began + HURRIED_SECONDS, self._end_oldest)

    async def _connect(self, sock: socket.socket, connection: AcceptedConnection) -> None:
        tls = self.tls
        try:
            if tls is None:
                await self._loop.connect_accepted_socket(lambda: connection, sock)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: self._before_its_buffer(connection),
                    sock,
                    ssl=tls.context,
                    ssl_handshake_timeout=self.limits.tls_handshake_timeout_ms / 1000,
                    ssl_shutdown_timeout=SHUTDOWN_SECONDS,
                )
        except BaseException as error:
            sock.close()
            if tls is not None and not self._closed and isinstance(error, OSError | asyncio.CancelledError):
                if isinstance(error, ssl.SSLError):
                    self.authentications.on_failure(self._loop.time(), is_again=False)
                self._report_handshake(connection.client, error)
            if not isinstance(error, OSError):  # ssl.SSLError and ConnectionError are OSErrors
                raise

    def _before_its_buffer(self, connection: AcceptedConnection) -> AcceptedConnection:
        """The protocol, which the event loop asks for right before it makes the TLS buffer."""
        map_tls_buffers()
        self._loop.call_soon(keep_freed_memory)
        return connection

    def _report_handshake(self, client: Client, error: BaseException) -> None:
        reason = "it was too slow while others waited" if isinstance(error, asyncio.CancelledError) else describe_handshake(error)
        self._report(client.client_host, f"{client.connection_id} on listener {client.listener_name}: the TLS handshake failed: {reason}")
