"""Bad input in place of SASL authenticates nobody. It costs a connection and a line that says who and why, and holds nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import socket
import struct
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.network.offenders import LINES_PER_WINDOW
from ottla.broker.security.sasl.session import MAX_TEXT
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.schema.registry import api
from tests.integration.test_sasl_listener import Wire, port_of
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker
from tests.support.scram_client import ScramClient
from tests.support.secured_listeners import (
    API_VERSIONS,
    MAX_RECEIVE,
    SECONDS,
    complaints,
    connect,
    is_closed_after,
    trusting,
    wait_until_idle,
)


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
def test_a_frame_that_is_too_large_is_not_read_and_counts_as_a_failure(
    broker: InProcessBroker, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    (counts,) = (each.authentications for each in broker.broker.socket_server.acceptors if each.endpoint.listener_name == listener)
    before = counts.failed_authentication_total
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
    assert counts.failed_authentication_total == before + 1


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
