"""Bad input at listeners with TLS and SASL costs a connection and a line that says who and why. It holds nothing and reveals no secret."""

from __future__ import annotations

import contextlib
import selectors
import shutil
import ssl
import struct
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.test_sasl_listener import port_of
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker
from tests.support.secured_listeners import (
    API_VERSIONS,
    HTTP,
    LISTENERS,
    SECONDS,
    client_hello,
    complaints,
    connect,
    is_closed_after,
    trusting,
    wait_until_idle,
)

BYTES = {
    "http": (HTTP, "this looks like HTTP"),
    "tls": (client_hello(), "this looks like TLS on a plaintext listener"),
    "zero size": (struct.pack(">i", 0), "an empty request has no header"),
    "negative size": (struct.pack(">i", -1), "a request of -1 bytes is impossible"),
    "largest size": (struct.pack(">i", 2**31 - 1) + bytes(1000), "a request of 2147483647 bytes is larger than s"),
    "NULs": (bytes(100_000), "an empty request has no header"),
    "ones": (b"\xff" * 100_000, "a request of -1 bytes is impossible"),
}
"""With the complaint of a listener without TLS."""


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("kind", BYTES)
def test_bytes_of_another_protocol_close_the_connection(
    broker: InProcessBroker, listener: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    has_tls = LISTENERS[listener].endswith("SSL")
    if kind == "tls" and has_tls:
        pytest.skip("this is how a good client begins")
    sent, complaint = BYTES[kind]
    with connect(broker, listener) as sock:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(sent)
        assert is_closed_after(sock)
    ((where, why),) = complaints(broker, caplog)
    assert where == listener
    assert why.startswith("the TLS handshake failed: " if has_tls else complaint)


@pytest.mark.parametrize("listener", ["SSL", "BOTH"])
def test_a_kafka_request_in_plaintext_is_told_apart_in_the_log(
    broker: InProcessBroker, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(broker, listener) as sock:
        sock.sendall(API_VERSIONS)
        assert is_closed_after(sock)
    counts = next(each.authentications for each in broker.broker.socket_server.acceptors if each.endpoint.listener_name == listener)
    assert counts.failed_authentication_total > 0
    ((where, why),) = complaints(broker, caplog)
    assert where == listener
    assert why.startswith("the TLS handshake failed: this looks like plaintext on a TLS listener")


@pytest.mark.parametrize("listener", ["SSL", "BOTH"])
def test_a_handshake_of_a_byte_at_a_time_ends_with_its_time(
    broker: InProcessBroker, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    with connect(broker, listener) as sock, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        sock.settimeout(0.02)
        for byte in client_hello() * 100:
            sock.send(bytes([byte]))
            with contextlib.suppress(TimeoutError):
                if not sock.recv(1000):
                    break
    assert 0.5 < time.monotonic() - began < SECONDS
    ((where, why),) = complaints(broker, caplog)
    assert where == listener
    assert why.startswith("the TLS handshake failed: ")


CERTIFICATES: dict[str, tuple[Callable[[Identity], Identity | None], str]] = {
    "none": (lambda authority: None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
    "of an unknown authority": (lambda authority: Identity("CN=alice", Identity("CN=another")), "unable to get local issuer certificate"),
    "of an authority with the name of another": (
        lambda authority: Identity("CN=alice", Identity("CN=authority")),
        "certificate signature failure",
    ),
    "signed by itself": (lambda authority: Identity("CN=alice"), "self-signed certificate"),
    "expired": (lambda authority: Identity("CN=alice", authority, days=-1), "certificate has expired"),
    "not valid yet": (lambda authority: Identity("CN=alice", authority, starts_in_days=1), "certificate is not yet valid"),
}


@pytest.mark.parametrize("kind", CERTIFICATES)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_with_a_bad_certificate_is_not_served(
    broker: InProcessBroker, authority: Identity, tmp_path: Path, kind: str, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    identity, complaint = CERTIFICATES[kind]
    context = trusting(identity(authority), tmp_path, version)
    with connect(broker, "SSL") as sock, contextlib.suppress(OSError), context.wrap_socket(sock) as tls:
        tls.sendall(API_VERSIONS)
        assert tls.recv(1000) == b""
    ((where, why),) = complaints(broker, caplog)
    assert where == "SSL"
    assert why.startswith("the TLS handshake failed: ")
    assert complaint in why


def test_a_good_certificate_is_served_whatever_server_name_the_client_asks_for(
    broker: InProcessBroker, authority: Identity, tmp_path: Path
) -> None:
    context = trusting(Identity("CN=alice", authority), tmp_path)
    for name in ("localhost", "another.example", "x" * 63 + ".example", None):
        with connect(broker, "SSL") as sock, context.wrap_socket(sock, server_hostname=name) as tls:
            tls.sendall(API_VERSIONS)
            assert len(tls.recv(1000)) > 100


def test_a_client_that_checks_names_leaves_a_broker_of_another_name(broker: InProcessBroker, server: Identity) -> None:
    assert server.issuer is not None
    context = ssl.create_default_context(cadata=server.issuer.certificate_pem)
    with connect(broker, "BOTH") as sock, pytest.raises(ssl.SSLCertVerificationError, match=r"another\.example"):
        context.wrap_socket(sock, server_hostname="another.example")
    with connect(broker, "BOTH") as sock, context.wrap_socket(sock, server_hostname="localhost") as tls:
        assert tls.version() == "TLSv1.3"


def test_a_version_of_tls_that_is_too_old_is_refused(broker: InProcessBroker) -> None:
    context = trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():  # Python wants nobody to use these versions
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with connect(broker, "BOTH") as sock, pytest.raises(OSError):
        context.wrap_socket(sock)


class Openssl:
    """A client that can ask for new keys, which Python's cannot: `openssl s_client`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def tell(self, message: bytes, expected: bytes) -> None:
        """Send a message, or a command of one letter and a line end; return when the output has what is expected, or the client ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(message)
        self._process.stdin.flush()
        self.said = b""
        deadline = time.monotonic() + SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while expected not in self.said:
                assert selector.select(deadline - time.monotonic()), self.said
                piece = self._process.stdout.read(65_536)
                if not piece:
                    break
                self.said += piece


@contextlib.contextmanager
def openssl_client(broker: InProcessBroker, listener: str, *options: str) -> Iterator[Openssl]:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port_of(broker, listener)}", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, bufsize=0) as process:
        try:
            client = Openssl(process)
            client.tell(b"", b"Verify return code")
            yield client
        finally:
            process.kill()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_a_client_may_change_its_keys_at_any_time_but_not_negotiate_again(broker: InProcessBroker) -> None:
    answer = struct.pack(">ih", 7, 0)
    with openssl_client(broker, "BOTH", "-tls1_3") as client:
        for _ in range(20):
            client.tell(b"K\n", b"KEYUPDATE")
        client.tell(API_VERSIONS, answer)
        assert answer in client.said
    with openssl_client(broker, "BOTH", "-tls1_2") as client:
        client.tell(API_VERSIONS, answer)
        assert answer in client.said
        client.tell(b"R\n", b"no renegotiation")
        assert b"no renegotiation" in client.said


@pytest.mark.parametrize("at", [1, 5, 100, -1])
def test_a_client_may_leave_in_the_middle_of_its_tls_handshake(broker: InProcessBroker, at: int) -> None:
    with connect(broker, "BOTH") as sock:
        sock.sendall(client_hello()[:at])
    wait_until_idle(broker)
