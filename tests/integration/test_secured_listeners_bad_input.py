"""Bad input at listeners with TLS and SASL costs a connection and a line that says who and why. It holds nothing and reveals no secret."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import random
import re
import selectors
import shutil
import socket
import ssl
import struct
import subprocess
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.network.offenders import LINES_PER_WINDOW
from broker.security.sasl.session import MAX_TEXT
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.header import RequestHeader
from protocol.schema.registry import api
from tests.integration.test_sasl_listener import MODULE, Wire, port_of
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.scram_client import ScramClient

SECONDS = 20
PASSWORD = "alice-secret"
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "SSL": "SSL", "BOTH": "SASL_SSL"}
HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
API_VERSIONS = struct.pack(">ihhih", 14, 18, 0, 7, 4) + b"test"
MAX_RECEIVE = 524_288


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module")
def server() -> Identity:
    return Identity("CN=localhost", Identity("CN=authority of the broker"))


@pytest.fixture(scope="module")
def broker(authority: Identity, server: Identity, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    lines = {
        "plain": f'{MODULE}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
        "scram-sha-256": f"{MODULE}.scram.ScramLoginModule required;",
        "oauthbearer": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    with a_broker_in_process(
        tmp_path_factory.mktemp("secured") / "log",
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


@pytest.fixture(autouse=True)
def _nothing_is_left_and_no_secret_is_logged(broker: InProcessBroker, server: Identity, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level("DEBUG", logger="broker")
    broker.run(broker.broker.socket_server._offenders.summarize)  # each test has all lines of its host
    yield
    complaints(broker, caplog)
    text = "\n".join(map(caplog.handler.format, caplog.get_records("call")))  # `caplog.text` has only what the end of the test logs
    for secret in (PASSWORD, *server.key_pem().splitlines()[1:-1]):
        assert secret not in text
    assert "Traceback" not in text


ABOUT_CLIENTS = ("asyncio", "broker.network", "broker.request", "broker.security", "broker.serving")
COMPLAINT = re.compile(r"127\.0\.0\.1:\d+-127\.0\.0\.1:\d+-\d+ on listener ([A-Z]+): (.+)")
COUNTED = re.compile(r"127\.0\.0\.1: (further lines like this are not shown|\d+ more connections were closed)")


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
    deadline = time.monotonic() + SECONDS
    while held(broker) != (0, 0):
        assert time.monotonic() < deadline, held(broker)
        time.sleep(0.02)


def connect(broker: InProcessBroker, listener: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(broker, listener)), timeout=SECONDS)


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
    outgoing = ssl.MemoryBIO()
    hello = trusting().wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    return outgoing.read()


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


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
def test_an_authentication_of_a_byte_at_a_time_ends_with_its_time(
    broker: InProcessBroker, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    sock: socket.socket = connect(broker, listener)
    if listener == "BOTH":
        sock = trusting().wrap_socket(sock)
    with sock, contextlib.suppress(OSError):
        sock.settimeout(0.05)
        for byte in struct.pack(">i", 10_000) + bytes(10_000):
            sock.sendall(bytes([byte]))
            with contextlib.suppress(TimeoutError):
                if not sock.recv(1000):
                    break
    assert 1 < time.monotonic() - began < SECONDS
    assert complaints(broker, caplog) == [(listener, "the client has not authenticated in time; closing the connection")]


CERTIFICATES: dict[str, tuple[Callable[[Identity], Identity | None], str]] = {
    "none": (lambda authority: None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
    "of an unknown authority": (lambda authority: Identity("CN=alice", Identity("CN=authority")), "unable to get local issuer certificate"),
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


class SecureWire(Wire):
    """A client of the SASL listener, or of that with SASL over TLS."""

    def __init__(self, broker: InProcessBroker, listener: str) -> None:
        super().__init__(port_of(broker, listener))
        if listener == "BOTH":
            self.socket = trusting().wrap_socket(self.socket)


STATES: dict[str, Callable[[Wire], object]] = {
    "at the beginning": lambda wire: None,
    "in a size": lambda wire: wire.socket.sendall(b"\0\0"),
    "in a request": lambda wire: wire.socket.sendall(API_VERSIONS[:-3]),
    "after ApiVersions": lambda wire: wire.ask(ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1"),
    "before the answer": lambda wire: wire.socket.sendall(API_VERSIONS),
    "after the handshake": lambda wire: wire.handshake("SCRAM-SHA-256"),
    "after the handshake without headers": lambda wire: wire.handshake("SCRAM-SHA-256", version=0),
    "after the first token": lambda wire: (
        wire.handshake("SCRAM-SHA-256"),
        wire.authenticate(ScramClient("SCRAM-SHA-256", "nobody", "").first),
    ),
    "after a wrong token": lambda wire: (wire.handshake(), wire.authenticate(b"\0alice\0wrong")),
    "when it is authenticated": lambda wire: wire.log_in(),
}


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_may_leave_in_every_state(broker: InProcessBroker, listener: str, state: str, is_reset: bool) -> None:
    with SecureWire(broker, listener) as wire:
        STATES[state](wire)
        if is_reset:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until_idle(broker)


@pytest.mark.parametrize("at", [1, 5, 100, -1])
def test_a_client_may_leave_in_the_middle_of_its_tls_handshake(broker: InProcessBroker, at: int) -> None:
    with connect(broker, "BOTH") as sock:
        sock.sendall(client_hello()[:at])
    wait_until_idle(broker)


def password_of(size: int) -> bytes:
    return b"\0alice\0" + b"p" * size


def unsecured(claims: object) -> bytes:
    """A token of OAUTHBEARER without a signature."""
    parts = ({"alg": "none"}, claims)
    return b".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts) + b"."


TOKENS = {
    "PLAIN": [
        b"",
        b"\0" * 500_000,
        b"\xff\xfe" * 250_000,
        password_of(MAX_RECEIVE - 100),
        b"\0" + b"u" * 500_000 + b"\0p",
        b"\0alice\0\xff",
    ],
    "SCRAM-SHA-256": [
        b"",
        b"\0" * 500_000,
        b"\xff" * 500_000,
        b"n,,n=\xff,r=x",
        b"n,,n=" + b"u" * 500_000,
        b"n,,n=a,r=x" + b",x" * 200_000,
        b"n,,n=alice,r=x,tokenauth=maybe" + b",x=y" * 100_000 + b"\0",
    ],
    "OAUTHBEARER": [
        b"\0" * 500_000,
        b"n,,\x01auth=Bearer " + b"." * 500_000 + b"\x01\x01",
        b"n,,\x01auth=Bearer " + b"W" * 400_000 + b".W.\x01\x01",
        b"n,,\x01auth=Bearer " + b"W1tb" * 100_000 + b".W.\x01\x01",  # a header of 300,000 brackets
        b"n,,\x01" + b"a=b\x01" * 100_000 + b"\x01",
        b"n,a=" + b"x" * 380_000 + b",\x01auth=Bearer " + unsecured({"sub": "alice", "exp": 4_000_000_000}) + b"\x01\x01",
    ],
}


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
@pytest.mark.parametrize(("mechanism", "token"), [(name, token) for name, tokens in TOKENS.items() for token in tokens])
def test_a_bad_token_costs_little_and_does_not_authenticate(
    broker: InProcessBroker, listener: str, mechanism: str, token: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    with SecureWire(broker, listener) as wire:
        assert wire.handshake(mechanism).error_code == ErrorCode.NONE
        answer = wire.authenticate(token)
        if answer is not None and answer.error_code == ErrorCode.NONE:  # the status of a bearer token, or the salt of an unknown user
            answer = wire.authenticate(b"\x01")
        assert answer is None or answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.metadata() is None
    assert time.monotonic() - began < 5
    ((where, why),) = complaints(broker, caplog)
    assert where == listener
    assert why.startswith("authentication failed: ")
    assert len(why) < MAX_TEXT + 100


FIRST_TOKENS = {
    "PLAIN": b"\0alice\0wrong-secret",
    "SCRAM-SHA-256": ScramClient("SCRAM-SHA-256", "alice", "", extensions=",tokenauth=true").first,
    "OAUTHBEARER": b"n,,\x01auth=Bearer " + unsecured({"sub": "alice"}) + b"\x01\x01",
}
CONVERSATIONS = 1500
"""Of damaged frames; each takes the broker less than a millisecond."""


def frames(mechanism: str, version: int) -> bytes:
    """All that a client of a mechanism sends up to its first token, which has a header after SaslHandshake 1."""

    def frame(key: ApiKey, version: int, **fields: object) -> bytes:
        types = api(key)
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="test")
        return header.encode(types.request_header_version(version)) + types.request(**fields).encode(version)

    token = FIRST_TOKENS[mechanism]
    sent = [
        frame(ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1"),
        frame(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism),
        frame(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token) if version else token,
    ]
    return b"".join(struct.pack(">i", len(each)) + each for each in sent)


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Bytes that differ from the whole in one to three places."""
    found = whole
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(found))
        found = found[:at] + chance.randbytes(chance.randrange(5)) + found[at + chance.randrange(5) :]
    return found


def test_damaged_frames_authenticate_nobody_and_say_little(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    (counts,) = (each.authentications for each in broker.broker.socket_server.acceptors if each.endpoint.listener_name == "SASL")
    before = counts.successful_authentication_total
    chance = random.Random(26)
    conversations = [frames(mechanism, version) for mechanism in FIRST_TOKENS for version in (0, 1)]
    for _ in range(CONVERSATIONS):
        with connect(broker, "SASL") as sock, contextlib.suppress(OSError):
            sock.sendall(damaged(chance.choice(conversations), chance))
            sock.shutdown(socket.SHUT_WR)
            assert is_closed_after(sock)
    assert len(complaints(broker, caplog)) <= 3 * LINES_PER_WINDOW  # a minute each
    assert counts.successful_authentication_total == before


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
def test_a_frame_that_is_too_large_is_not_read(broker: InProcessBroker, listener: str, caplog: pytest.LogCaptureFixture) -> None:
    with SecureWire(broker, listener) as wire:
        wire.handshake()
        with contextlib.suppress(OSError):
            wire.socket.sendall(struct.pack(">i", MAX_RECEIVE + 1) + bytes(MAX_RECEIVE + 1))
        assert is_closed_after(wire.socket)
    (complaint,) = complaints(broker, caplog)
    assert complaint == (
        listener,
        f"a request of {MAX_RECEIVE + 1} bytes is larger than sasl.server.max.receive.size={MAX_RECEIVE}; closing the connection",
    )


def metrics(broker: InProcessBroker) -> list[str]:
    endpoint = broker.broker.metrics
    assert endpoint is not None
    with urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=SECONDS) as response:
        lines: list[str] = response.read().decode().splitlines()
    return lines


def test_authentications_and_cipher_suites_are_counted_by_listener(broker: InProcessBroker) -> None:
    prefix = "kafka_server_socket_server_metrics_"

    def values(listener: str) -> dict[str, float]:
        label = f'{{listener="{listener}"}} '
        found = (line.removeprefix(prefix).partition(label) for line in metrics(broker) if line.startswith(prefix))
        return {name: float(value) for name, separator, value in found if separator and "authentication" in name}

    before = values("BOTH")
    with SecureWire(broker, "BOTH") as wire, SecureWire(broker, "BOTH") as wrong:
        wire.log_in()
        STATES["after a wrong token"](wrong)
        ciphers = [line for line in metrics(broker) if line.startswith(f"{prefix}connections_cipher{{")]
        after = values("BOTH")
    assert ciphers
    assert all('cipher="TLS_AES_256_GCM_SHA384",listener="BOTH"' in line and 'protocol="TLSv1.3"' in line for line in ciphers)
    for outcome in ("successful", "failed"):
        assert after[f"{outcome}_authentication_total"] == before[f"{outcome}_authentication_total"] + 1
        assert after[f"{outcome}_authentication_rate"] > 0
    assert "reauthentication_latency_avg" in after
    assert values("SSL").keys() == after.keys()


def test_at_last_good_clients_are_served_on_all_listeners(broker: InProcessBroker, authority: Identity, tmp_path: Path) -> None:
    for listener in ("SASL", "BOTH"):
        with SecureWire(broker, listener) as wire:
            wire.log_in()
            assert wire.metadata() is not None
    context = trusting(Identity("CN=alice", authority), tmp_path)
    with connect(broker, "SSL") as sock, context.wrap_socket(sock) as tls:
        tls.sendall(API_VERSIONS)
        assert len(tls.recv(1000)) > 100
