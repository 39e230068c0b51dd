"""Provides a socket server for tests, and clients that only send and receive frames."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvloop

from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.request_channel import Answer
from ottla.broker.network.socket_server import SocketServer
from ottla.config.listeners import EndPoint, SecurityProtocol
from tests.support.network import FunctionHandler, Handle, framed

LOOPS = ["uvloop", "asyncio"]
Scenario = Callable[[], Awaitable[None]]


def run_on(loop: str) -> Callable[[Scenario], None]:
    """A function that runs a scenario on that kind of loop, for at most a minute."""
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop

    def run(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_timed(scenario))

    return run


async def _timed(scenario: Scenario) -> None:
    async with asyncio.timeout(60):
        await scenario()


def endpoint(name: str = "PLAINTEXT", host: str = "127.0.0.1", port: int = 0) -> EndPoint:
    return EndPoint(name, host, port, SecurityProtocol.PLAINTEXT)


def echo(frame: memoryview, connection: object) -> Answer:
    return bytes(frame)


_opened: list[Peer] = []


@asynccontextmanager
async def serving(handler: Handle = echo, limits: NetworkLimits | None = None, *names: str) -> AsyncIterator[SocketServer]:
    server = SocketServer(limits or NetworkLimits())
    await server.start(
        [endpoint(name) for name in names or ("PLAINTEXT",)], FunctionHandler(handler), "INTERNAL" if "INTERNAL" in names else None
    )
    try:
        yield server
    finally:
        for peer in _opened:
            peer.close()
        _opened.clear()
        await server.close()
        assert server.connections() == []
        assert server.quotas.total == 0


class Peer:
    """A client that knows nothing but frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, server: SocketServer, name: str = "PLAINTEXT", **options: int) -> Peer:
        bound = server.bound[name]
        sock = socket.socket()
        for option, value in options.items():
            sock.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", bound.port))
        except OSError:
            sock.close()
            raise
        peer = cls(*await asyncio.open_connection(sock=sock, limit=64 * 1024))
        _opened.append(peer)
        return peer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(framed(*bodies))

    async def receive(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()


async def until(condition: Callable[[], bool]) -> None:
    """Polls; the scenario's own time limit is the deadline."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.002)
