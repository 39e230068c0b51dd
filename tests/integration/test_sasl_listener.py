"""A SASL_PLAINTEXT listener, asked byte by byte: recorded exchanges, every order of requests, failures, and re-authentication."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.scram_client import ScramClient

GOLDEN = Path(__file__).parent.parent / "golden" / "wire" / "sasl.jsonl"
MODULE = "org.apache.kafka.common.security"
USERS = 'user_admin="admin-secret" user_alice="alice-secret" user_carol="c"'
DELAY_MS = 150
LIFETIME_MS = 60_000


class Wire:
    """A connection, and what is asked on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.client_id = "test"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """A frame; None when the broker has closed."""
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack(">i", head)[0])

    def _exactly(self, size: int) -> bytes | None:
        found = b""
        while len(found) < size:
            try:
                piece = self.socket.recv(size - len(found))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            found += piece
        return found

    def ask_raw(self, frame: bytes) -> bytes | None:
        self.send(frame)
        return self.receive()

    def frame(self, key: ApiKey, version: int, correlation_id: int = 7, **fields: Any) -> bytes:
        """A request."""
        types = api(key)
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=self.client_id)
        return header.encode(types.request_header_version(version)) + types.request(**fields).encode(version)

    def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """The decoded answer; None when the broker has closed."""
        types = api(key)
        answer = self.ask_raw(self.frame(key, version, **fields))
        if answer is None:
            return None
        _, offset = ResponseHeader.decode(memoryview(bytearray(answer)), types.response_header_version(version), 0)
        response, _ = types.response.decode(memoryview(bytearray(answer)), version, offset)
        return response

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.ask(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)

    def authenticate(self, token: bytes = b"\0alice\0alice-secret", version: int = 2) -> Any:
        return self.ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token)

    def metadata(self) -> Message | None:
        answer: Message | None = self.ask(ApiKey.METADATA, 12, topics=[])
        return answer

    def log_in(self) -> None:
        assert self.handshake().error_code == ErrorCode.NONE
        assert self.authenticate().error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    lines = {
        "plain": f"{MODULE}.plain.PlainLoginModule required {USERS};",
        "scram-sha-256": f"{MODULE}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{MODULE}.scram.ScramLoginModule required;",
    }
    with a_broker_in_process(
        tmp_path_factory.mktemp("sasl") / "log",
        listeners="PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "connections.max.reauth.ms": LIFETIME_MS,
            "connection.failed.authentication.delay.ms": DELAY_MS,
            "ottla.authentication.timeout.ms": 3000,
        },
        **{f"listener.name.sasl.{name}.sasl.jaas.config": line for name, line in lines.items()},
    ) as running:
        for exchange in recorded(ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
            with Wire(port_of(running, "PLAINTEXT")) as client:
                assert client.ask_raw(bytes.fromhex(exchange["request_hex"])) == bytes.fromhex(exchange["response_hex"])
        yield running


def port_of(broker: InProcessBroker, listener: str) -> int:
    (address,) = (each for each in broker.broker.addresses if each.startswith(f"{listener}://"))
    return int(address.rpartition(":")[2])


@pytest.fixture
def wire(broker: InProcessBroker) -> Iterator[Wire]:
    with Wire(port_of(broker, "SASL")) as found:
        yield found


def recorded(key: ApiKey, listener: str = "") -> list[dict[str, Any]]:
    exchanges = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return [each for each in exchanges if each["api_key"] == key and each["to"].startswith(listener)]


def test_the_recorded_exchange_of_plain_is_answered_byte_by_byte(wire: Wire) -> None:
    versions = wire.ask_raw(bytes.fromhex(recorded(ApiKey.API_VERSIONS, "sasl")[0]["request_hex"]))
    assert versions is not None
    for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        exchange = recorded(key, "sasl")[0]
        assert wire.ask_raw(bytes.fromhex(exchange["request_hex"])) == bytes.fromhex(exchange["response_hex"])


def test_the_recorded_first_step_of_scram_is_answered_but_for_the_nonce(wire: Wire) -> None:
    (exchange,) = (each for each in recorded(ApiKey.SASL_AUTHENTICATE, "sasl") if "SCRAM" in each["client_id"])
    wire.handshake("SCRAM-SHA-256")
    answer = wire.ask_raw(bytes.fromhex(exchange["request_hex"]))
    expected = bytes.fromhex(exchange["response_hex"])
    assert answer is not None
    assert answer[:8] == expected[:8]
    assert answer[answer.index(b",s=") :] == expected[expected.index(b",s=") :]
    nonce = b"r=83z9q"
    assert answer[answer.index(b"r=") :].startswith(nonce)
    assert expected[expected.index(b"r=") :].startswith(nonce)


@pytest.mark.parametrize(("mechanism", "user"), [("SCRAM-SHA-256", "alice"), ("SCRAM-SHA-512", "bob")])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_users_of_the_store_authenticate_by_scram(wire: Wire, mechanism: str, user: str, version: int) -> None:
    client = ScramClient(mechanism, user, f"{user}-secret")
    wire.handshake(mechanism)
    first = wire.authenticate(client.first, version)
    assert (first.error_code, first.session_lifetime_ms) == (ErrorCode.NONE, 0)
    final = wire.authenticate(client.final(bytes(first.auth_bytes)), version)
    assert client.is_server(bytes(final.auth_bytes))
    assert final.session_lifetime_ms == (LIFETIME_MS if version else 0)
    assert wire.metadata() is not None


def test_tokens_after_the_first_version_of_the_handshake_have_no_header(wire: Wire) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
    assert wire.handshake("SCRAM-SHA-256", version=0).error_code == ErrorCode.NONE
    first = wire.ask_raw(client.first)
    assert first is not None
    final = wire.ask_raw(client.final(first))
    assert final is not None
    assert client.is_server(final)
    assert wire.metadata() is not None


def test_a_failure_without_headers_closes_without_an_answer(wire: Wire) -> None:
    wire.handshake(version=0)
    assert wire.ask_raw(b"\0alice\0wrong") is None


@pytest.mark.parametrize(
    ("mechanism", "token", "text"),
    [
        ("PLAIN", b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (
            "PLAIN",
            b"alice",
            "Invalid SASL/PLAIN response: expected 3 tokens, got 1",
        ),
        (
            "SCRAM-SHA-512",
            b"n,,nonsense",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
        ),
    ],
)
def test_wrong_credentials_are_answered_late_and_end_the_connection(wire: Wire, mechanism: str, token: bytes, text: str) -> None:
    wire.handshake(mechanism)
    began = time.monotonic()
    answer = wire.authenticate(token)
    assert time.monotonic() - began >= DELAY_MS / 1000
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert wire.receive() is None


def test_an_unknown_mechanism_is_answered_with_the_list_and_ends_the_connection(wire: Wire) -> None:
    answer = wire.handshake("GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"]
    assert wire.receive() is None


def test_api_versions_comes_once_but_for_an_unknown_version(wire: Wire) -> None:
    unknown = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 1, -1)
    for _ in range(2):
        answer = wire.ask_raw(unknown)
        assert answer is not None
        assert struct.unpack_from(">h", answer, 4) == (ErrorCode.UNSUPPORTED_VERSION,)
    for _ in range(2):
        answer = wire.ask(ApiKey.API_VERSIONS, 3, client_software_name="-", client_software_version="1")
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert wire.ask(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1").error_code == ErrorCode.NONE
    assert wire.ask(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1") is None


@pytest.mark.parametrize(
    "frame", [b"x", b"\0", b"\0\3\0\1\0\0\0\1\xff\xff", b"GET / HTTP/1.1\r\n", bytes(500_000), b"\0\x24\0\2\0\0\0\1\xff\xff\0\1\0"]
)
def test_other_bytes_before_the_handshake_close_the_connection(wire: Wire, frame: bytes) -> None:
    assert wire.ask_raw(frame) is None


def test_other_requests_instead_of_a_token_are_answered_with_an_error(wire: Wire) -> None:
    wire.handshake()
    answer = wire.ask(ApiKey.LIST_GROUPS, 4)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.receive() is None


def test_a_frame_of_a_stranger_is_bounded_and_that_of_a_known_client_is_not(wire: Wire, broker: InProcessBroker) -> None:
    with Wire(port_of(broker, "SASL")) as stranger:
        stranger.socket.sendall(struct.pack(">i", 524_289))
        assert stranger.receive() is None
    wire.log_in()
    topics = [{"name": f"topic-{number:040d}"} for number in range(20_000)]
    types = api(ApiKey.DESCRIBE_GROUPS)
    frame = RequestHeader(request_api_key=types.key, request_api_version=0, correlation_id=1, client_id="a").encode(1)
    frame += types.request(groups=[each["name"] for each in topics]).encode(0)
    assert len(frame) > 524_288
    assert wire.ask_raw(frame) is not None


def test_after_authentication_both_requests_are_illegal(wire: Wire) -> None:
    wire.log_in()
    assert wire.authenticate().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.metadata() is not None


def test_a_client_authenticates_again_but_not_twice_in_a_second(wire: Wire) -> None:
    wire.log_in()
    assert wire.handshake().error_code == ErrorCode.NONE
    answer = wire.authenticate()
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, LIFETIME_MS)
    assert wire.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.metadata() is not None


def test_a_request_in_progress_is_answered_before_its_client_authenticates_again(wire: Wire) -> None:
    wire.log_in()
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    frames = [
        wire.frame(ApiKey.CREATE_TOPICS, 5, 1, topics=[topic], timeout_ms=10_000),
        wire.frame(ApiKey.SASL_HANDSHAKE, 1, 2, mechanism="PLAIN"),
    ]
    wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    answers = [wire.receive() or b"" for _ in frames]
    assert [struct.unpack_from(">i", answer) for answer in answers] == [(1,), (2,)]
    assert wire.authenticate().error_code == ErrorCode.NONE


def test_a_client_stays_the_same_when_it_authenticates_again(wire: Wire) -> None:
    wire.log_in()
    wire.handshake()
    answer = wire.authenticate(b"\0carol\0c")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.carol"
    assert wire.receive() is None


def test_a_client_keeps_its_mechanism_when_it_authenticates_again(wire: Wire) -> None:
    wire.log_in()
    assert wire.handshake("SCRAM-SHA-256").error_code == ErrorCode.NONE
    assert wire.authenticate(ScramClient("SCRAM-SHA-256", "alice", "alice-secret").first) is None


def test_a_failure_to_authenticate_again_ends_the_connection(wire: Wire) -> None:
    wire.log_in()
    wire.handshake()
    assert wire.authenticate(b"nonsense").error_message == "Invalid SASL/PLAIN response: expected 3 tokens, got 1"
    assert wire.receive() is None


def test_a_client_that_never_authenticates_is_closed(broker: InProcessBroker) -> None:
    with Wire(port_of(broker, "SASL")) as silent:
        assert silent.receive() is None


def test_a_large_token_is_refused_as_a_small_one(wire: Wire) -> None:
    wire.handshake()
    answer = wire.authenticate(b"\0alice\0" + b"x" * 500_000)
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert wire.receive() is None


def test_requests_sent_ahead_are_bounded_as_those_of_a_known_client(wire: Wire) -> None:
    frames = []
    for key, version, fields in (
        (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0alice-secret"}),
        (ApiKey.DESCRIBE_GROUPS, 0, {"groups": [f"group-{number:040d}" for number in range(20_000)]}),
    ):
        frame = wire.frame(key, version, **fields)
        frames.append(struct.pack(">i", len(frame)) + frame)
    wire.socket.sendall(b"".join(frames))
    assert [len(wire.receive() or b"") > 0 for _ in frames] == [True] * 3


def test_handlers_see_the_principal(wire: Wire, broker: InProcessBroker) -> None:
    wire.log_in()
    port = wire.socket.getsockname()[1]

    def principals() -> list[str]:
        server = broker.broker.socket_server
        return [str(each.client.principal) for each in server.connections() if each.client.client_port == port]

    assert broker.run(principals) == ["User:alice"]
