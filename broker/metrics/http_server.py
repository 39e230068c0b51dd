"""Serves HTTP for the metrics: the standard library's WSGI server, with accepts on the event loop and a limit on
threads.

The loop accepts connections, so nothing polls and no thread is left after `close`; a thread reads and answers each
request. At most MAX_REQUESTS are served together. One more connection takes the place of the oldest that is idle: one
that waits for the bytes of its client, or for its client to read. So slow clients do not lock out others. A silent
client is disconnected after TIMEOUT_SECONDS, one whose request is incomplete after HEAD_SECONDS, and one that reads a
byte now and then after CONNECTION_SECONDS.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from enum import IntEnum
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

logger = logging.getLogger(__name__)

MAX_REQUESTS: Final = 8
MOST_SCRAPES: Final = 4
"""Requests for metrics that an application answers together. They take long, and do not yield; the other places are for health checks."""
TIMEOUT_SECONDS: Final = 5.0
HEAD_SECONDS: Final = 5.0
"""Time from the accept to the end of the request's head, seconds."""
CONNECTION_SECONDS: Final = 40.0
"""Time from the accept to the end of an answer, seconds; more than that of a scrape."""
PAUSE_SECONDS: Final = 1.0
"""Time without accepts after a failed accept, seconds: descriptors are probably exhausted, and the loop would report
the socket again at once."""
_CONNECTION: Final = "ottla.connection"

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Limits:
    """The times of connections, seconds."""

    def __init__(self, head: float = HEAD_SECONDS, connection: float = CONNECTION_SECONDS) -> None:
        self.head = head
        self.connection = connection


class _Stage(IntEnum):
    """The thing that a connection waits for. The first two are idle, and yield in this order."""

    REQUEST = 0
    READER = 1
    APPLICATION = 2
    END = 3


class _Client:
    """An open connection. Its thread and the event loop change it under the lock of the server."""

    __slots__ = ("accepted_at", "deadline", "stage")

    def __init__(self, now: float, deadline: float) -> None:
        self.accepted_at = now
        self.deadline = deadline
        self.stage = _Stage.REQUEST


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_SECONDS
    server: _Server

    def parse_request(self) -> bool:
        """The library takes a head that ends with the connection for a complete one."""
        return super().parse_request() and self.server.on_request(self.connection)

    def get_environ(self) -> dict[str, Any]:
        """The application knows its connection."""
        return {**super().get_environ(), _CONNECTION: self.connection}

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged as events."""
        logger.debug(format, *args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = False  # so that server_close waits for them
    timeout = 0  # handle_request answers a pending request and does not wait

    def __init__(self, sock: socket.socket, app: App, limits: Limits) -> None:
        address = sock.getsockname()
        super().__init__(address, _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock
        # Without the library's own bind, which would resolve a name.
        self.server_address = address
        self.server_name, self.server_port = address[:2]
        self.setup_environ()
        self.set_app(self._answer)
        self._app = app
        self.cannot_accept = False
        self.idle = asyncio.Event()
        """Set when the last thread is about to end."""
        self._loop = asyncio.get_running_loop()
        self._open: dict[socket.socket, _Client] = {}
        """The clients, in the order of their accepts."""
        self._lock = threading.Lock()
        self._limits = limits
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
        now = self._loop.time()
        with self._lock:
            has_room = self._make_room()
            if has_room:
                self._open[request] = _Client(now, now + self._limits.head)
        if not has_room:
            self.shutdown_request(request)
            return
        if self._watch is None:
            self._watch = self._loop.call_later(self._limits.head, self._end_late)
        super().process_request(request, client_address)

    def _make_room(self) -> bool:
        """Whether one more connection is served, perhaps in the place of an idle one."""
        if len(self._open) >= 2 * MAX_REQUESTS:
            return False  # the threads of those that gave up their places have not ended
        served = [(connection, client) for connection, client in self._open.items() if client.stage is not _Stage.END]
        if len(served) < MAX_REQUESTS:
            return True
        connection, client = min(served, key=lambda each: each[1].stage)  # the first of several: the oldest
        if client.stage is _Stage.APPLICATION:
            return False
        self._end(connection, client)
        return True

    def _end(self, connection: socket.socket, client: _Client) -> None:
        client.stage = _Stage.END
        _disconnect([connection])

    def on_request(self, connection: socket.socket) -> bool:
        """The head of a request is complete. False if the connection has ended; its head may be incomplete then."""
        with self._lock:
            client = self._open[connection]
            if client.stage is _Stage.END:
                return False
            client.stage = _Stage.APPLICATION
            client.deadline = client.accepted_at + self._limits.connection
            return True

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = self._app(environ, start_response)
        with self._lock:
            client = self._open[environ[_CONNECTION]]
            if client.stage is not _Stage.END:
                client.stage = _Stage.READER
        return answer

    def _end_late(self) -> None:
        """Disconnect clients whose time is over, and check again when the time of the next one is over; called on the loop."""
        self._watch = None
        now = self._loop.time()
        with self._lock:
            for connection, client in self._open.items():
                if client.deadline <= now:
                    self._end(connection, client)
            deadlines = [client.deadline for client in self._open.values() if client.stage is not _Stage.END]
        if deadlines:
            self._watch = self._loop.call_at(min(deadlines), self._end_late)

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

    def __init__(self, sock: socket.socket, app: App, limits: Limits | None = None) -> None:
        self.port: int = sock.getsockname()[1]
        self._server = _Server(sock, app, limits or Limits())
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
