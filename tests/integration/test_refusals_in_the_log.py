"""Refused clients of secured listeners: one line says who and why, and a host that goes on is only counted."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.broker.network.offenders import LINES_PER_WINDOW
from tests.integration.test_sasl_listener import MODULE, USERS, Wire, port_of
from tests.support.broker_process import eventually
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

ATTEMPTS = LINES_PER_WINDOW + 7
SECONDS = 20
HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
API_VERSIONS = struct.pack(">ihhih", 14, 18, 0, 7, 4) + b"test"


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture
def broker(authority: Identity, tmp_path: Path) -> Iterator[InProcessBroker]:
    """A new one for each test, since it counts the refusals of a host together."""
    server = Identity("CN=localhost", authority)
    with a_broker_in_process(
        tmp_path / "log",
        listeners="PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0,SSL://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SSL:SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {USERS};",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": server.key_pem(),
            "ssl.keystore.certificate.chain": server.certificate_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.certificate_pem,
            "ssl.client.auth": "required",
            "connection.failed.authentication.delay.ms": 0,
        },
    ) as running:
        yield running


def wrong_password(broker: InProcessBroker, _: Path) -> None:
    with Wire(port_of(broker, "SASL")) as wire:
        wire.handshake()
        wire.authenticate(b"\0alice\0wrong-secret")
        assert wire.receive() is None


def unexpected_request(broker: InProcessBroker, _: Path) -> None:
    with Wire(port_of(broker, "SASL")) as wire:
        assert wire.metadata() is None


def sends(listener: str, data: bytes) -> Callable[[InProcessBroker, Path], None]:
    def send(broker: InProcessBroker, _: Path) -> None:
        with socket.create_connection(("127.0.0.1", port_of(broker, listener)), SECONDS) as sock, contextlib.suppress(OSError):
            sock.sendall(data)
            while sock.recv(65_536):
                pass

    return send


def certificate(identity: Callable[[], Identity] | None) -> Callable[[InProcessBroker, Path], None]:
    def shake_hands(broker: InProcessBroker, folder: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if identity is not None:
            context.load_cert_chain(*identity().files(folder, "client"))
        with (
            socket.create_connection(("127.0.0.1", port_of(broker, "SSL")), SECONDS) as sock,
            contextlib.suppress(OSError),
            context.wrap_socket(sock) as tls,
        ):
            while tls.recv(65_536):
                pass

    return shake_hands


REFUSALS: dict[str, tuple[Callable[[InProcessBroker, Path], None], str]] = {
    "a wrong password": (wrong_password, "authentication failed: Authentication failed: Invalid username or password"),
    "another request": (unexpected_request, "during authentication; expected is "),
    "HTTP": (sends("SASL", HTTP), "this looks like HTTP"),
    "plaintext on TLS": (sends("SSL", API_VERSIONS), "this looks like plaintext on a TLS listener"),
    "no certificate": (certificate(None), "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
    "a stranger's certificate": (certificate(lambda: Identity("CN=mallory")), "CERTIFICATE_VERIFY_FAILED"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refused_client_is_a_line_and_a_host_that_goes_on_is_counted(
    broker: InProcessBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level("INFO")
    refuse, complaint = REFUSALS[kind]
    network = broker.broker.socket_server

    def said(text: str) -> list[str]:
        return [each for each in caplog.messages if text in each]

    for attempt in range(1, ATTEMPTS + 1):
        refuse(broker, tmp_path)
        eventually(lambda: broker.run(lambda: network.quotas.total) == 0, SECONDS)
        assert len(said(complaint)) == min(attempt, LINES_PER_WINDOW)
    assert all("127.0.0.1" in line and kind_of_listener(kind) in line for line in said(complaint))
    assert len(said("127.0.0.1: further lines like this are not shown, but counted")) == 1
    assert not said("more connections were closed")
    broker.run(network.close)
    assert len(said(f"127.0.0.1: {ATTEMPTS - LINES_PER_WINDOW} more connections were closed for bad or refused input")) == 1
    assert "Traceback" not in caplog.text


def kind_of_listener(kind: str) -> str:
    """The part of a line that names the listener."""
    return "SASL" if kind in ("a wrong password", "another request", "HTTP") else "SSL"
