"""A listener with a TLS context: frames and files go through the transport."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.network import acceptor
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.request_channel import Answer
from ottla.broker.network.socket_server import SocketServer
from ottla.broker.security.tls.listener import ListenerTls, tls_of
from ottla.config.broker_properties import BrokerProperties
from ottla.config.listeners import EndPoint, SecurityProtocol
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.certificates import Identity
from tests.support.network import FunctionHandler, framed, other
from tests.support.peers import LOOPS, Peer, Scenario, echo, endpoint, run_on, until

RECORD_BYTES = 16_384
"""The largest record of TLS."""
ENDPOINT = EndPoint("S", "127.0.0.1", 0, SecurityProtocol.SSL)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return run_on(request.param)


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module")
def listener_tls(authority: Identity) -> ListenerTls:
    return the_tls(authority)


def the_tls(authority: Identity, **more: str) -> ListenerTls:
    """The TLS of a listener. Keyword arguments are further properties, with underscores for dots."""
    server = Identity("CN=localhost", authority)
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server.key_pem(),
        "ssl.keystore.certificate.chain": server.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
    }
    return tls_of(BrokerProperties(properties | {name.replace("_", "."): text for name, text in more.items()}), ENDPOINT)


def client_context(tmp_path: Path | None = None, identity: Identity | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if tmp_path is not None and identity is not None:
        context.load_cert_chain(*identity.files(tmp_path, "client"))
    return context


def test_requests_and_files_of_all_sizes_are_answered_in_order(
    run: Callable[[Scenario], None], listener_tls: ListenerTls, tmp_path: Path
) -> None:
    data = random.Random(1).randbytes(3 * 1024 * 1024)
    (tmp_path / "segment.log").write_bytes(data)
    region = FileRegion(RealFileSystem().open(str(tmp_path / "segment.log"), read_only=True), 0, len(data))

    def handler(frame: memoryview, connection: object) -> Answer:
        return [b"h", region] if frame[1] == 1 else bytes(frame)

    async def scenario() -> None:
        server = SocketServer(NetworkLimits())
        await server.start([ENDPOINT], FunctionHandler(handler), tls_of=lambda endpoint: listener_tls)
        port = server.bound["S"].port
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port, ssl=client_context()))
        large = random.Random(2).randbytes(5_000_000)
        requests = [*[other(bytes(i * 77_777)) for i in range(10)], other(large), b"\x00\x01", b"\x00\x01", other(b"end")]
        about_a_record = [other(bytes(RECORD_BYTES - len(framed(other())) + more)) for more in (-1, 0, 1) * 3]
        peer.send(*requests)
        for request in about_a_record:
            peer.send(request)
        for request in requests + about_a_record:
            assert await peer.receive() == (b"h" + data if request == b"\x00\x01" else request)
        assert [each._reader.growing for each in server.connections()] == [None]
        peer.close()
        await server.close()

    run(scenario)


def test_a_plaintext_client_is_closed_with_a_line_and_a_silent_one_does_not_hold_up_the_end(
    run: Callable[[Scenario], None], listener_tls: ListenerTls, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = SocketServer(NetworkLimits())
        await server.start([ENDPOINT], FunctionHandler(lambda frame, connection: b""), tls_of=lambda endpoint: listener_tls)
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
    assert ["this looks like plaintext on a TLS listener" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_principal_is_that_of_the_certificate_before_the_first_request(
    run: Callable[[Scenario], None], authority: Identity, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    tls = the_tls(authority, ssl_client_auth="requested", ssl_principal_mapping_rules="RULE:^CN=(.*),OU=x$/$1/,RULE:^CN=(.*)$/$1/")
    alice = client_context(tmp_path, Identity("CN=alice,OU=x", authority))
    nobody = client_context()
    alice.maximum_version = nobody.maximum_version = version

    async def scenario() -> None:
        server = SocketServer(NetworkLimits())
        await server.start(
            [ENDPOINT], FunctionHandler(lambda _, connection: str(connection.client.principal).encode()), tls_of=lambda _: tls
        )
        for context, name in ((alice, b"User:alice"), (nobody, b"User:ANONYMOUS")):
            peer = Peer(*await asyncio.open_connection("127.0.0.1", server.bound["S"].port, ssl=context))
            peer.send(other())
            assert await peer.receive() == name
            peer.close()
        await server.close()

    run(scenario)


@pytest.mark.parametrize(
    ("client_auth", "subject", "known", "complaint"),
    [
        ("required", None, True, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("required", "CN=mallory", False, "CERTIFICATE_VERIFY_FAILED"),
        ("requested", "CN=mallory", False, "CERTIFICATE_VERIFY_FAILED"),
        ("required", "O=without a rule", True, "the client's certificate has no principal"),
    ],
)
def test_a_client_that_does_not_belong_is_closed_with_one_line(
    run: Callable[[Scenario], None],
    authority: Identity,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    client_auth: str,
    subject: str | None,
    known: bool,
    complaint: str,
) -> None:
    tls = the_tls(authority, ssl_client_auth=client_auth, ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/")
    identity = None if subject is None else Identity(subject, authority if known else Identity("CN=authority"))
    handled = []

    def handler(frame: memoryview, connection: object) -> Answer:
        handled.append(bytes(frame))
        return b""

    async def scenario() -> None:
        server = SocketServer(NetworkLimits())
        await server.start([ENDPOINT], FunctionHandler(handler), tls_of=lambda _: tls)
        with suppress(OSError):
            peer = Peer(*await asyncio.open_connection("127.0.0.1", server.bound["S"].port, ssl=client_context(tmp_path, identity)))
            peer.send(other())
            with suppress(OSError):
                assert await peer.is_closed()
            peer.close()
        await until(lambda: server.quotas.total == 0)
        await server.close()

    run(scenario)
    assert not handled
    assert [complaint in message and "127.0.0.1" in message for message in caplog.messages] == [True]


def test_silent_clients_use_up_no_handshakes_for_long(
    run: Callable[[Scenario], None], listener_tls: ListenerTls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HURRIED_SECONDS", 0.1)

    async def scenario() -> None:
        server = SocketServer(NetworkLimits(tls_handshakes=2))
        await server.start([ENDPOINT], FunctionHandler(lambda frame, _: bytes(frame)), tls_of=lambda endpoint: listener_tls)
        port = server.bound["S"].port
        silent = [Peer(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(3)]
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port, ssl=client_context()))
        peer.send(other(b"served"))
        assert await peer.receive() == other(b"served")
        assert len(server.acceptors[0]._opening) <= 2
        for each in (*silent, peer):
            each.close()
        await server.close()
        assert server.quotas.total == 0

    run(scenario)
    assert caplog.text.count("it was too slow while others waited") >= 2


def test_a_handshake_ends_after_its_time(
    run: Callable[[Scenario], None], listener_tls: ListenerTls, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = SocketServer(NetworkLimits(tls_handshake_timeout_ms=100))
        await server.start([ENDPOINT], FunctionHandler(lambda frame, _: bytes(frame)), tls_of=lambda endpoint: listener_tls)
        silent = Peer(*await asyncio.open_connection("127.0.0.1", server.bound["S"].port))
        assert await silent.is_closed()
        silent.close()
        await until(lambda: server.quotas.total == 0)
        await server.close()

    run(scenario)
    assert ["the TLS handshake failed" in message for message in caplog.messages] == [True]


def test_a_failed_handshake_makes_room_on_another_listener(run: Callable[[Scenario], None], listener_tls: ListenerTls) -> None:
    async def scenario() -> None:
        server = SocketServer(NetworkLimits(max_connections=1))
        await server.start([ENDPOINT, endpoint("P")], FunctionHandler(echo), tls_of=lambda _: listener_tls)
        silent = Peer(*await asyncio.open_connection("127.0.0.1", server.bound["S"].port))
        await until(lambda: server.quotas.total == 1)
        waiting = await Peer.connect(server, "P")
        waiting.send(other(b"served"))
        await until(lambda: not server.acceptors[1]._accepting)
        silent.close()
        assert await waiting.receive() == other(b"served")
        waiting.close()
        await server.close()

    run(scenario)


def test_a_handshake_ends_with_its_listener(run: Callable[[Scenario], None], listener_tls: ListenerTls) -> None:
    async def scenario() -> None:
        server = SocketServer(NetworkLimits(tls_handshake_timeout_ms=600_000))
        await server.start([ENDPOINT], FunctionHandler(echo), tls_of=lambda _: listener_tls)
        silent = Peer(*await asyncio.open_connection("127.0.0.1", server.bound["S"].port))
        await until(lambda: server.quotas.total == 1)
        server.remove_listener("S")
        assert await silent.is_closed()
        await until(lambda: server.quotas.total == 0)
        silent.close()
        await server.close()

    run(scenario)


def test_a_processor_without_new_connections_gets_those_that_were_being_opened(
    run: Callable[[Scenario], None], listener_tls: ListenerTls
) -> None:
    async def scenario() -> None:
        server = SocketServer(NetworkLimits(num_network_threads=2))
        await server.start([ENDPOINT], FunctionHandler(echo), tls_of=lambda _: listener_tls)
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.bound["S"].port))
        await until(lambda: server.quotas.total == 1)
        server.apply(NetworkLimits(num_network_threads=1))
        peer = Peer(*await asyncio.open_connection(sock=sock, ssl=client_context(), server_hostname="localhost"))
        peer.send(other(b"served"))
        assert await peer.receive() == other(b"served")
        assert len(server.connections()) == 1
        server.apply(NetworkLimits(num_network_threads=2))
        assert [len(processor.connections) for processor in server.processors] == [0, 1]
        peer.close()
        await server.close()

    run(scenario)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_has_the_principal_of_its_certificate(
    run: Callable[[Scenario], None], authority: Identity, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Java's clients resume sessions by themselves, and show no certificate again then."""
    tls = the_tls(authority, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/")
    context = client_context(tmp_path, Identity("CN=alice", authority))
    context.maximum_version = version

    def connect(port: int, session: ssl.SSLSession | None) -> tuple[bytes, bool | None, ssl.SSLSession | None]:
        """The principal, whether the session was resumed, and the session."""
        with socket.create_connection(("127.0.0.1", port), 30) as plain, context.wrap_socket(plain, session=session) as client:
            client.sendall(framed(other()))
            answer = client.recv(1000)
            return answer[4:], client.session_reused, client.session

    async def scenario() -> None:
        server = SocketServer(NetworkLimits())
        handler = FunctionHandler(lambda _, connection: str(connection.client.principal).encode())
        await server.start([ENDPOINT], handler, tls_of=lambda _: tls)
        port = server.bound["S"].port
        principal, resumed, session = await asyncio.to_thread(connect, port, None)
        assert (principal, resumed) == (b"User:alice", False)
        assert session is not None
        principal, resumed, _ = await asyncio.to_thread(connect, port, session)
        assert (principal, resumed) == (b"User:alice", True)
        await server.close()

    run(scenario)
