"""Stands between a broker and its S3 server, and has chosen requests fail, or the broker die, in a chosen way."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

PIECE_BYTES = 1024


class Fault(Enum):
    """A fault of the network or of the server."""

    REFUSED = "the connection is closed before the request is read"
    BLACK_HOLE = "nothing is answered until the proxy is closed"
    TRICKLE = "a KiB is answered every 50 ms"
    UNAVAILABLE = "503, without asking the server"
    FORBIDDEN = "403, without asking the server"
    LOST = "the server does what it is asked, and the answer is lost"
    CUT = "half of the answer's body arrives"
    FLIPPED = "a byte in the middle of the answer's body is another"
    SLOW = "the answer is 30 ms late"


Choice = Callable[[int, str, str], Fault | None]
"""Chooses the fault of a request by its number, method and path."""


class Kill(NamedTuple):
    """The death of a process at a request: before the server gets it, or when the server has done it and the answer is not sent yet."""

    pid: int
    number: int
    is_forwarded: bool


class FaultProxy:
    """Forwards requests to the server at `url`. `choose` may be changed at any time; the first request has number 1."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = target.hostname or "", target.port or 80
        self.choose: Choice = lambda number, method, path: None
        self.requests: list[tuple[str, str]] = []
        """Method and path of each request."""
        self.kill: Kill | None = None
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._let_go = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all connections."""
        self._is_closed.set()
        self.let_go()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def let_go(self) -> None:
        """Ends the connections of requests that are never answered."""
        held, self._let_go = self._let_go, threading.Event()
        held.set()

    def forget(self) -> None:
        """Begins anew: the next request has number 1, and nothing happens to it."""
        with self._lock:
            self.requests = []
            self.kill = None
            self.choose = lambda number, method, path: None

    def _next(self, method: str, path: str) -> tuple[Fault | None, Kill | None]:
        with self._lock:
            self.requests.append((method, path))
            number = len(self.requests)
            kill = self.kill if self.kill is not None and self.kill.number == number else None
        return self.choose(number, method, path), kill

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        def answer(request: BaseHTTPRequestHandler) -> None:
            proxy._answer(request)

        for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
            setattr(Handler, f"do_{method}", answer)
        return Handler

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        fault, kill = self._next(request.command, request.path)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if kill is not None and not kill.is_forwarded:
            self._kill(request, kill)
            return
        if fault is Fault.REFUSED:
            self._drop(request)
            return
        if fault is Fault.BLACK_HOLE:
            self._let_go.wait()
            self._drop(request)
            return
        if fault in (Fault.UNAVAILABLE, Fault.FORBIDDEN):
            self._send(request, 503 if fault is Fault.UNAVAILABLE else 403, [], b"<Error><Code>Fault</Code></Error>")
            return
        server = HTTPConnection(*self._target, timeout=30)
        try:
            server.request(request.command, request.path, body, dict(request.headers))
            answer = server.getresponse()
            data = answer.read()
            headers = answer.getheaders()
        finally:
            server.close()
        if kill is not None:
            self._kill(request, kill)
            return
        if fault is Fault.LOST:
            self._drop(request)
            return
        if fault is Fault.FLIPPED and data:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        if fault is Fault.SLOW:
            time.sleep(0.03)
        self._send(request, answer.status, headers, data, fault)

    def _send(
        self, request: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], data: bytes, fault: Fault | None = None
    ) -> None:
        request.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                request.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length")
        request.send_header("Content-Length", (length or "0") if request.command == "HEAD" else str(len(data)))
        request.end_headers()
        if request.command == "HEAD":
            return
        if fault is Fault.CUT:
            request.wfile.write(data[: len(data) // 2])
            self._drop(request)
            return
        if fault is not Fault.TRICKLE:
            request.wfile.write(data)
            return
        for at in range(0, len(data), PIECE_BYTES):
            request.wfile.write(data[at : at + PIECE_BYTES])
            if self._is_closed.wait(0.05):
                self._drop(request)
            return

    def _kill(self, request: BaseHTTPRequestHandler, kill: Kill) -> None:
        os.kill(kill.pid, signal.SIGKILL)
        self._drop(request)

    def _drop(self, request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        with suppress(OSError):  # the client may have gone first
            request.wfile.flush()
            request.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def a_fault_proxy(url: str) -> Iterator[FaultProxy]:
    """A proxy before this server, closed at the end."""
    proxy = FaultProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def once(fault: Fault, matches: Callable[[str, str], bool] = lambda method, path: True) -> Choice:
    """Chooses the fault for the first request that matches, and none for the others."""
    left = [fault]

    def choose(number: int, method: str, path: str) -> Fault | None:
        return left.pop() if left and matches(method, path) else None

    return choose


def always(fault: Fault, matches: Callable[[str, str], bool] = lambda method, path: True) -> Choice:
    """Chooses the fault for each request that matches."""
    return lambda number, method, path: fault if matches(method, path) else None


def at_request(due: int, fault: Fault) -> Choice:
    """Chooses the fault for the request of this number."""
    return lambda number, method, path: fault if number == due else None
