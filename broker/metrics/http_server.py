"""Serves HTTP for the metrics: the standard library's WSGI server, with accepts on the event loop and a limit on
threads.

The loop accepts connections, so nothing polls and no thread is left after `close`; a thread reads and answers each
request. At most MAX_REQUESTS are served together; further connections are closed at once. A silent client is
disconnected after TIMEOUT_SECONDS, and one that sends or reads a byte now and then after CONNECTION_SECONDS.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

logger = logging.getLogger(__name__)

MAX_REQUESTS: Final = 8
TIMEOUT_SECONDS: Final = 5.0
CONNECTION_SECONDS: Final = 40.0
"""Time from the accept to the end of an answer, seconds; more than that of a scrape."""
PAUSE_SECONDS: Final = 1.0
"""Time without accepts after a failed accept, seconds: descriptors are probably exhausted, and the loop would report
the socket again at once."""

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged as events."""
        logger.debug(format, *args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = False  # so that server_close waits for them
    timeout = 0  # handle_request answers a pending request and does not wait

    def __init__(self, sock: socket.socket, app: App, connection_seconds: float) -> None:
        address = sock.getsockname()
        super().__init__(address, _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock
        # Without the library's own bind, which would resolve a name.
        self.server_address = address
        self.server_name, self.server_port = address[:2]
        self.setup_environ()
        self.set_app(app)
        self.cannot_accept = False
        self.idle = asyncio.Event()
        """Set when the last thread is about to end."""
        self._loop = asyncio.get_running_loop()
        self._open: dict[socket.socket, float] = {}
        """The time of the accept by connection."""
        self._lock = threading.Lock()
        self._connection_seconds = connection_seconds
        self._watch: asyncio.TimerHandle | None = None

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept. Raises OSError."""
        try:
            return super().get_request()
        except BlockingIOError:
            raise  # the client left before the accept
        except OSError:
            self.cannot_accept = True
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Pass a connection to a thread of its own; called on the loop."""
        with self._lock:
            is_full = len(self._open) >= MAX_REQUESTS
            if not is_full:
                self._open[request] = self._loop.time()
        if is_full:
            self.shutdown_request(request)
            return
        if self._watch is None:
            self._watch = self._loop.call_later(self._connection_seconds, self._end_old)
        super().process_request(request, client_address)

    def _end_old(self) -> None:
        """Disconnect clients whose time is over, and check again when the time of the next one is over; called on the loop."""
        self._watch = None
        too_old = self._loop.time() - self._connection_seconds
        with self._lock:
            _disconnect(connection for connection, accepted_at in self._open.items() if accepted_at <= too_old)
            younger = [accepted_at for accepted_at in self._open.values() if accepted_at > too_old]
        if younger:
            self._watch = self._loop.call_later(min(younger) - too_old, self._end_old)

    def shutdown_request(self, request: Any) -> None:
        """The connection is finished."""
        super().shutdown_request(request)
        with self._lock:
            self._open.pop(request, None)
            is_busy = bool(self._open)
        if not is_busy:
            self._loop.call_soon_threadsafe(self.idle.set)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, or sent nonsense, is not logged as an event."""
        logger.debug("a request of %s to the metrics failed", client_address, exc_info=True)

    @property
    def is_busy(self) -> bool:
        """Whether a thread is still running."""
        with self._lock:
            return bool(self._open)

    def hang_up(self) -> None:
        """Shut down the open connections, so that their threads end."""
        if self._watch is not None:
            self._watch.cancel()
        with self._lock:
            _disconnect(self._open)


def _disconnect(connections: Iterable[socket.socket]) -> None:
    """Shut down connections; their threads close them."""
    for connection in connections:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # it was already closed


class HttpServer:
    """Serves `app` on a listening socket until it is closed. `port` is the bound one."""

    def __init__(self, sock: socket.socket, app: App, connection_seconds: float = CONNECTION_SECONDS) -> None:
        self.port: int = sock.getsockname()[1]
        self._server = _Server(sock, app, connection_seconds)
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to accept."""
        self._retry = None
        self._loop.add_reader(self._server.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        self._server.handle_request()
        if self._server.cannot_accept:
            self._server.cannot_accept = False
            self._loop.remove_reader(self._server.fileno())
            self._retry = self._loop.call_later(PAUSE_SECONDS, self.start)

    @property
    def is_busy(self) -> bool:
        """Whether a connection is open."""
        return self._server.is_busy

    async def close(self) -> None:
        """Stop accepting, disconnect clients, and wait for the threads."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._server.fileno())
        self._server.hang_up()
        while self._server.is_busy:
            # The event is set on this loop, so never between these two lines.
            self._server.idle.clear()
            await self._server.idle.wait()
        self._server.server_close()


async def bind(host: str, port: int) -> socket.socket:
    """A listening socket; an empty host means all interfaces. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(MAX_REQUESTS)
    except OSError:
        sock.close()
        raise
    return sock
