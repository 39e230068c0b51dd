"""Clients of the metrics endpoint that are slow on purpose hold neither a connection nor a thread for long."""

import asyncio
import http.client
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from ottla.broker.metrics.endpoint import SCRAPE_SECONDS
from ottla.broker.metrics.http_server import CONNECTION_SECONDS, MAX_REQUESTS, HttpServer, bind

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
        server = HttpServer(await bind("127.0.0.1", 0), app, connection_seconds=0.3)
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


def test_a_scrape_has_its_time() -> None:
    assert CONNECTION_SECONDS > SCRAPE_SECONDS
