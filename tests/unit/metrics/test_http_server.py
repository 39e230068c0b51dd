"""Clients of the metrics endpoint that are slow on purpose hold neither a connection nor a thread for long."""

import asyncio
import http.client
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from ottla.broker.metrics.endpoint import SCRAPE_SECONDS
from ottla.broker.metrics.http_server import CONNECTION_SECONDS, HEAD_SECONDS, MAX_REQUESTS, App, HttpServer, Limits, bind

SECONDS = 60.0
PART = bytes(1 << 20)
PARTS = 64


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answers with more bytes than the buffers of a connection hold, or with none."""
    parts = [PART] * PARTS if environ["PATH_INFO"] == "/large" else []
    start_response("200 OK", [("Content-Length", str(sum(map(len, parts))))])
    return parts


def sends_a_byte_now_and_then(client: socket.socket, end: threading.Event) -> None:
    client.sendall(b"GET /large HTTP/1.1\r\nX: ")
    while not end.is_set() and not select.select([client], [], [], 0.01)[0]:
        client.sendall(b"x")


def reads_a_part_now_and_then(client: socket.socket, end: threading.Event) -> None:
    """So much that no part of the answer takes long."""
    client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
    while client.recv(1 << 16) and not end.wait(0.05):
        pass


def reads_nothing(client: socket.socket, end: threading.Event) -> None:
    client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
    end.wait(SECONDS)


def sends_nothing(client: socket.socket, end: threading.Event) -> None:
    end.wait(SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("is_slow", [sends_a_byte_now_and_then, reads_a_part_now_and_then, reads_nothing, sends_nothing])
def test_slow_clients_are_disconnected_in_time_and_the_next_one_is_served(
    is_slow: Callable[[socket.socket, threading.Event], None],
) -> None:
    async def run() -> int:
        server = HttpServer(await bind("127.0.0.1", 0), app, Limits(connection=0.3))
        server.start()
        end = threading.Event()

        def slow(client: socket.socket) -> None:
            with client, suppress(OSError):
                is_slow(client, end)

        def status() -> int:
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
            client.request("GET", "/small")
            return client.getresponse().status

        with ThreadPoolExecutor(MAX_REQUESTS) as threads:
            try:
                for _ in range(MAX_REQUESTS):
                    threads.submit(slow, socket.create_connection(("127.0.0.1", server.port), SECONDS))
                await until(lambda: server.is_busy)
                await until(lambda: not server.is_busy)
            finally:
                end.set()
        found = await asyncio.to_thread(status)
        await server.close()
        return found

    assert asyncio.run(run()) == http.client.OK


Session = Callable[[int], None]


def with_a_server(session: Session, app: App = app, limits: Limits | None = None) -> None:
    """Have a thread call `session` with the port of a server."""

    async def run() -> None:
        server = HttpServer(await bind("127.0.0.1", 0), app, limits)
        server.start()
        try:
            await asyncio.to_thread(session, server.port)
        finally:
            await server.close()

    asyncio.run(run())


def connect(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), SECONDS)
    connection.sendall(sent)
    return connection


def has_ended(connection: socket.socket) -> bool:
    with suppress(ConnectionResetError):
        while received := connection.recv(1 << 16):
            del received
    return True


def status(port: int) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    client.request("GET", "/small")
    return client.getresponse().status


@pytest.mark.parametrize("sent", [b"", b"GET /small HT", b"GET /small HTTP/1.1\r\nX: "], ids=["nothing", "a part of a line", "a header"])
def test_the_oldest_of_the_incomplete_requests_yields_to_a_newer_one(sent: bytes) -> None:
    def session(port: int) -> None:
        with ExitStack() as stack:
            slow = [stack.enter_context(connect(port, sent)) for _ in range(MAX_REQUESTS)]
            assert status(port) == http.client.OK
            assert has_ended(slow[0])
            slow[1].sendall(b"GET /small HTTP/1.0\r\n\r\n" if not sent else b"\r\n\r\n")
            assert slow[1].recv(1)

    with_a_server(session, limits=Limits(head=SECONDS))


def test_clients_that_do_not_read_their_answers_yield_to_a_newer_one() -> None:
    answered = threading.Semaphore(0)

    def counting(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return app(environ, start_response)
        finally:
            answered.release()

    def session(port: int) -> None:
        with ExitStack() as stack:
            for _ in range(MAX_REQUESTS):
                stack.enter_context(connect(port, b"GET /large HTTP/1.0\r\n\r\n"))
            for _ in range(MAX_REQUESTS):
                assert answered.acquire(timeout=SECONDS)
            assert status(port) == http.client.OK

    with_a_server(session, counting)


def test_a_request_that_is_being_answered_does_not_yield() -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    def busy(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        begun.release()
        assert end.wait(SECONDS)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    def session(port: int) -> None:
        with ExitStack() as stack:
            working = [stack.enter_context(connect(port, b"GET / HTTP/1.0\r\n\r\n")) for _ in range(MAX_REQUESTS)]
            for _ in working:
                assert begun.acquire(timeout=SECONDS)
            try:
                with connect(port) as refused:
                    assert has_ended(refused)
            finally:
                end.set()
            for each in working:
                assert each.recv(1 << 16).startswith(b"HTTP/1.0 200")

    with_a_server(session, busy)


def test_a_byte_now_and_then_does_not_extend_the_time_for_a_request() -> None:
    def session(port: int) -> None:
        with connect(port, b"GET / HTTP/1.1\r\nX: ") as client, suppress(ConnectionError):
            while not select.select([client], [], [], 0.01)[0]:
                client.sendall(b"x")
            assert has_ended(client)

    with_a_server(session, limits=Limits(head=0.2))


def test_a_scrape_has_its_time() -> None:
    assert CONNECTION_SECONDS > SCRAPE_SECONDS > HEAD_SECONDS
