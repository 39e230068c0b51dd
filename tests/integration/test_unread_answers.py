"""Clients that never read a large answer are closed, and those that read it slowly are not; over plaintext and TLS, on both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from ottla.broker.network import socket_server, unread_answers
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.socket_server import SocketServer
from ottla.config.listeners import EndPoint, SecurityProtocol
from tests.integration.test_tls_listener import client_context, the_tls
from tests.support.certificates import Identity
from tests.support.network import FunctionHandler, other
from tests.support.peers import LOOPS, Peer, Scenario, run_on, until

MiB = 1024 * 1024
ANSWER_BYTES = 4 * MiB
READ_BYTES = 32 * 1024
PAUSE_S = 0.02


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return run_on(request.param)


async def a_peer(port: int, uses_tls: bool) -> Peer:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * 1024)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    if uses_tls:
        streams = await asyncio.open_connection(sock=sock, limit=READ_BYTES, ssl=client_context(), server_hostname="localhost")
    else:
        streams = await asyncio.open_connection(sock=sock, limit=READ_BYTES)
    return Peer(*streams)


async def read_slowly(peer: Peer) -> int:
    """Reads an answer; its size."""
    got = 0
    while got < 4 + ANSWER_BYTES:
        data = await peer.reader.read(READ_BYTES)
        assert data, f"closed after {got} bytes"
        got += len(data)
        await asyncio.sleep(PAUSE_S)
    return got


@pytest.mark.parametrize("protocol", [SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL])
def test_who_never_reads_is_closed_and_who_reads_slowly_is_not(
    run: Callable[[Scenario], None], protocol: SecurityProtocol, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unread_answers, "PATIENCE_NS", 1_000_000_000)
    monkeypatch.setattr(socket_server, "LATE_CHECK_SECONDS", 0.05)
    uses_tls = protocol is SecurityProtocol.SSL
    listener_tls = the_tls(Identity("CN=authority"))

    async def scenario() -> None:
        server = SocketServer(NetworkLimits(large_requests_max_bytes=4 * MiB))
        await server.start(
            [EndPoint("L", "127.0.0.1", 0, protocol)],
            FunctionHandler(lambda frame, connection: bytes(ANSWER_BYTES)),
            tls_of=lambda _: listener_tls,
        )
        slow, silent = [await a_peer(server.bound["L"].port, uses_tls) for _ in range(2)]
        for peer in (slow, silent):
            peer.send(other())
        reading = asyncio.create_task(read_slowly(slow))
        unread = server.request_channel.unread
        await until(lambda: unread.bytes > ANSWER_BYTES)
        await until(lambda: len(server.connections()) == 1)
        assert await reading == 4 + ANSWER_BYTES
        await until(lambda: unread.bytes == 0)
        assert len(server.connections()) == 1
        slow.close()
        silent.close()
        await server.close()

    run(scenario)
    assert [record.message for record in caplog.records if "does not read its answers" in record.message] != []
