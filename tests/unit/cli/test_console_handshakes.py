"""Clients that do not complete a TLS handshake with the console are disconnected, and lock out no other client."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from ottla.console import handshakes
from ottla.console.connections import BoundedRequests
from ottla.console.handshakes import MOST_HANDSHAKES, HandshakingServer
from tests.support.certificates import Identity

SECONDS = 30.0
Run = Callable[[Coroutine[None, None, None]], None]
BOTH_LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Address(NamedTuple):
    """Where the server listens."""

    host: str
    port: int


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The files of a certificate and its key."""
    return Identity("CN=localhost").files(tmp_path_factory.mktemp("console"), "console")


async def app(scope: Scope, _: Receive, send: Send) -> None:
    """Answers with what it knows of the connection."""
    body = f"{scope['scheme']} {scope['client'][1]}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def a_server(identity: tuple[Path, Path]) -> AsyncIterator[Address]:
    """A server, which ends in time although clients are connected."""
    certificate, key = identity
    config = uvicorn.Config(
        app, http=BoundedRequests, ws="none", lifespan="off", log_config=None, ssl_certfile=certificate, ssl_keyfile=key
    )
    server = HandshakingServer(config)
    async with asyncio.timeout(SECONDS):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(server.serve([listening]))
            yield Address(*listening.getsockname())
            server.should_exit = True
            await serving


async def answer(address: Address, identity: tuple[Path, Path]) -> None:
    """Ask over TLS."""
    context = ssl.create_default_context(cafile=identity[0])
    reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
    port = writer.get_extra_info("sockname")[1]
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == f"https {port}".encode()
    writer.close()


async def is_disconnected(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


@BOTH_LOOPS
@pytest.mark.slow
def test_silent_clients_yield_to_others_the_oldest_first(run: Run, identity: tuple[Path, Path]) -> None:
    async def session() -> None:
        async with a_server(identity) as address:
            silent = [await asyncio.open_connection(*address) for _ in range(MOST_HANDSHAKES + 9)]
            await answer(address, identity)
            assert all([await is_disconnected(reader) for reader, _ in silent[:10]])
            assert not any(reader.at_eof() for reader, _ in silent[10:])
            for _, writer in silent:
                writer.transport.abort()

    run(session())


@BOTH_LOOPS
@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "a part"])
def test_a_handshake_that_is_not_complete_in_time_ends(
    run: Run, sent: bytes, identity: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def session() -> None:
        async with a_server(identity) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(sent)
            assert await is_disconnected(reader)
            writer.close()

    monkeypatch.setattr(handshakes, "HANDSHAKE_SECONDS", 0.1)
    run(session())


@BOTH_LOOPS
@pytest.mark.slow
def test_a_server_stops_during_a_handshake_and_after_one_that_failed(run: Run, identity: tuple[Path, Path]) -> None:
    async def session() -> None:
        async with a_server(identity) as address:
            plain, plain_writer = await asyncio.open_connection(*address)
            plain_writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with suppress(ConnectionResetError):
                await plain.read()  # perhaps an alert
            _, writer = await asyncio.open_connection(*address)
            await answer(address, identity)
        for each in (plain_writer, writer):
            each.transport.abort()

    run(session())


@pytest.mark.slow
def test_clients_are_accepted_once_files_can_be_opened_again(identity: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    async def session() -> None:
        loop = asyncio.get_running_loop()
        accept = loop.sock_accept
        refused = 0

        async def with_few_files(listening: socket.socket) -> tuple[socket.socket, Any]:
            nonlocal refused
            if refused < 2:
                refused += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return await accept(listening)

        monkeypatch.setattr(loop, "sock_accept", with_few_files)
        async with a_server(identity) as address:
            await answer(address, identity)
        assert refused == 2

    asyncio.run(session())
