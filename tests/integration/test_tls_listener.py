"""A listener with a TLS context: frames and files go through the transport."""

from __future__ import annotations

import asyncio
import random
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.network.limits import NetworkLimits
from broker.network.request_channel import Answer
from broker.network.socket_server import SocketServer
from config.listeners import EndPoint, SecurityProtocol
from storage.disk.filesystem import RealFileSystem
from storage.segment.file_region import FileRegion
from tests.support.network import FunctionHandler, framed, other
from tests.support.peers import LOOPS, Peer, Scenario, run_on

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command to make a certificate")


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return run_on(request.param)


@pytest.fixture(scope="module")
def server_context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_requests_and_files_of_all_sizes_are_answered_in_order(
    run: Callable[[Scenario], None], server_context: ssl.SSLContext, tmp_path: Path
) -> None:
    data = random.Random(1).randbytes(3 * 1024 * 1024)
    (tmp_path / "segment.log").write_bytes(data)
    region = FileRegion(RealFileSystem().open(str(tmp_path / "segment.log"), read_only=True), 0, len(data))

    def handler(frame: memoryview, connection: object) -> Answer:
        return [b"h", region] if frame[1] == 1 else bytes(frame)

    async def scenario() -> None:
        server = SocketServer(NetworkLimits(), tls={"S": server_context})
        await server.start([EndPoint("S", "127.0.0.1", 0, SecurityProtocol.SSL)], FunctionHandler(handler))
        port = server.bound["S"].port
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port, ssl=client_context()))
        requests = [*[other(bytes(i * 77_777)) for i in range(10)], b"\x00\x01", b"\x00\x01", other(b"end")]
        peer.send(*requests)
        for request in requests:
            assert await peer.receive() == (b"h" + data if request == b"\x00\x01" else request)
        assert [each._reader.growing for each in server.connections()] == [None]
        peer.close()
        await server.close()

    run(scenario)


def test_a_plaintext_client_is_closed_with_a_line_and_a_silent_one_does_not_hold_up_the_end(
    run: Callable[[Scenario], None], server_context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = SocketServer(NetworkLimits(), tls={"S": server_context})
        await server.start([EndPoint("S", "127.0.0.1", 0, SecurityProtocol.SSL)], FunctionHandler(lambda frame, connection: b""))
        port = server.bound["S"].port
        plain = Peer(*await asyncio.open_connection("127.0.0.1", port))
        plain.writer.write(framed(other()))
        assert await plain.is_closed()
        silent = Peer(*await asyncio.open_connection("127.0.0.1", port))
        assert await server.drain(10)
        await server.close()
        assert server.quotas.total == 0
        for peer in (plain, silent):
            peer.close()

    run(scenario)
    assert ["the TLS handshake failed" in record.message for record in caplog.records] == [True]
