"""Starts a broker whose listeners have no security, SASL, TLS, and both, and reads what its log says about their clients."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

MODULE = "org.apache.kafka.common.security"
SECONDS = 20
PASSWORD = "alice-secret"
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "SSL": "SSL", "BOTH": "SASL_SSL"}
HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
API_VERSIONS = struct.pack(">ihhih", 14, 18, 0, 7, 4) + b"test"
MAX_RECEIVE = 524_288
"""The longest frame of a client that has not authenticated, bytes."""
ABOUT_CLIENTS = ("asyncio", "ottla.broker.network", "ottla.broker.request", "ottla.broker.security", "ottla.broker.serving")
COMPLAINT = re.compile(r"127\.0\.0\.1:\d+-127\.0\.0\.1:\d+-\d+ on listener ([A-Z]+): (.+)")
COUNTED = re.compile(r"127\.0\.0\.1: (further lines like this are not shown|\d+ more connections were closed)")


@contextmanager
def a_broker_with_secured_listeners(directory: Path, authority: Identity, server: Identity) -> Iterator[InProcessBroker]:
    """A running broker with the certificate of `server`. Clients of the listener SSL need one of `authority`, those of SASL a login."""
    lines = {
        "plain": f'{MODULE}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
        "scram-sha-256": f"{MODULE}.scram.ScramLoginModule required;",
        "oauthbearer": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    with a_broker_in_process(
        directory / "log",
        listeners=",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        **{
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": server.key_pem(),
            "ssl.keystore.certificate.chain": server.certificate_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.certificate_pem,
            "ssl.client.auth": "required",
            "connection.failed.authentication.delay.ms": 0,
            "ottla.metrics.listener": "127.0.0.1:0",
            "ottla.authentication.timeout.ms": 2000,
            "ottla.tls.handshake.timeout.ms": 1000,
        },
        **{f"listener.name.{listener}.{name}.sasl.jaas.config": line for listener in ("sasl", "both") for name, line in lines.items()},
    ) as running:
        yield running


@contextmanager
def nothing_is_left_and_no_secret_is_logged(broker: InProcessBroker, server: Identity, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Checks after a test that no connection is open, and that the log has lines about clients, but no secret and no stack trace."""
    caplog.set_level("DEBUG", logger="ottla.broker")
    broker.run(broker.broker.socket_server._offenders.summarize)  # each test has all lines of its host
    yield
    complaints(broker, caplog)
    text = "\n".join(map(caplog.handler.format, caplog.get_records("call")))  # `caplog.text` has only what the end of the test logs
    for secret in (PASSWORD, *server.key_pem().splitlines()[1:-1]):
        assert secret not in text
    assert "Traceback" not in text


def complaints(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The listener and the reason of each line about a client, once no client is left. There are no other warnings about clients."""
    wait_until_idle(broker)
    records = [each for each in caplog.get_records("call") if each.levelno >= logging.WARNING and each.name.startswith(ABOUT_CLIENTS)]
    lines = [each.getMessage() for each in records if not COUNTED.match(each.getMessage())]
    found = [COMPLAINT.fullmatch(line) for line in lines]
    assert None not in found, lines
    return [(match[1], match[2]) for match in found if match is not None]


def held(broker: InProcessBroker) -> tuple[int, int]:
    """Connections, and connections that are being opened."""
    network = broker.broker.socket_server
    return broker.run(lambda: (len(network.connections()) + network.quotas.total, sum(len(each._opening) for each in network.acceptors)))


def wait_until_idle(broker: InProcessBroker) -> None:
    """Return when no connection is left."""
    deadline = time.monotonic() + SECONDS
    while held(broker) != (0, 0):
        assert time.monotonic() < deadline, held(broker)
        time.sleep(0.02)


def connect(broker: InProcessBroker, listener: str) -> socket.socket:
    """A connection to the listener, in plaintext."""
    (address,) = (each for each in broker.broker.addresses if each.startswith(f"{listener}://"))
    return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=SECONDS)


def is_closed_after(sock: socket.socket) -> bool:
    """Whether the broker closes the connection, whatever it sends before."""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while sock.recv(65_536):
            pass
    return True


def trusting(identity: Identity | None = None, folder: Path | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A client that trusts any broker."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version is not None:
        context.maximum_version = version
    if identity is not None and folder is not None:
        context.load_cert_chain(*identity.files(folder, "client"))
    return context


def client_hello() -> bytes:
    """The first message of a TLS client."""
    outgoing = ssl.MemoryBIO()
    hello = trusting().wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    return outgoing.read()
