"""A SASL listener that cannot be as configured stops the start; sessions end, and strangers leave for newer clients."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.server import CannotStart
from ottla.broker.serving import authentication
from ottla.protocol.errors import ErrorCode
from tests.integration.test_sasl_listener import MODULE, USERS, Wire, port_of
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

VALIDATOR = "OAuthBearerValidatorCallbackHandler"
LINE = f"{MODULE}.plain.PlainLoginModule required {USERS};"
SASL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": LINE,
}


PUBLIC_KEY = {
    "kty": "EC",
    "crv": "P-256",
    "kid": "one",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}
"""That of an example in RFC 7515."""


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "Invalid value PLAIN,GSSAPI for configuration sasl.enabled.mechanisms: listener SASL cannot offer GSSAPI",
        ),
        (
            {"listener.name.sasl.plain.sasl.jaas.config": LINE.rstrip(";")},
            "Invalid value [hidden] for configuration listener.name.sasl.plain.sasl.jaas.config: JAAS config entry not terminated",
        ),
        (
            {"inter.broker.listener.name": "SASL", "sasl.mechanism.inter.broker.protocol": "PLAIN"},
            "this broker cannot log in at listener SASL of other brokers: listener.name.sasl.plain.sasl.jaas.config=[hidden]: "
            f"the login module {MODULE}.plain.PlainLoginModule has no option username",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
                "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": f"{MODULE}.oauthbearer.{VALIDATOR}",
                "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "file:/no/such/keys",
            },
            "Invalid value file:/no/such/keys for configuration sasl.oauthbearer.jwks.endpoint.url: "
            "the keys for signed tokens cannot be read: [Errno 2] No such file or directory",
        ),
    ],
)
def test_the_start_is_refused_in_one_line_and_nothing_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], line: str
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(CannotStart) as refused, a_broker_in_process(tmp_path / "log", **{**SASL, **change}):
        pass
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "log").exists()


def test_keys_of_the_dynamic_configuration_count_where_the_static_ones_cannot_be_read(tmp_path: Path) -> None:
    name = "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
    (tmp_path / "keys").write_text(json.dumps({"keys": [PUBLIC_KEY]}))
    secured = {
        **SASL,
        "broker.id": 0,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": f"{MODULE}.oauthbearer.{VALIDATOR}",
        name: "file:/no/such/keys",
    }

    def store(broker: InProcessBroker, stored: dict[str, str]) -> None:
        broker.run(broker.services.administration.config_admin.alter_entity_config, "brokers", "0", lambda _: stored)

    with a_broker_in_process(tmp_path / "log", broker_id=0) as broker:
        store(broker, {name: f"file:{tmp_path / 'keys'}"})
    with a_broker_in_process(tmp_path / "log", **secured) as broker:
        store(broker, {})
    with pytest.raises(CannotStart, match="file:/no/such/keys"), a_broker_in_process(tmp_path / "log", **secured):
        pass


def test_a_client_that_does_not_authenticate_again_in_time_is_closed(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path / "log", **SASL, **{"connections.max.reauth.ms": 1}) as broker:
        with Wire(port_of(broker, "SASL")) as wire:
            wire.log_in()
            eventually(lambda: wire.metadata() is None)  # a request within the first millisecond is served
        with Wire(port_of(broker, "SASL")) as wire:
            wire.log_in()
            wire.log_in()
            eventually(lambda: wire.handshake() is None)  # it is too early for the next time
        with Wire(port_of(broker, "SASL")) as wire:
            wire.log_in()
            assert wire.handshake().error_code == ErrorCode.NONE
        with Wire(port_of(broker, "SASL")) as old:  # it is not told of the session's end, but the session ends
            old.handshake()
            assert old.authenticate(version=0).error_code == ErrorCode.NONE
            eventually(lambda: old.metadata() is None)
        with Wire(port_of(broker, "SASL")) as older:
            older.handshake(version=0)
            assert older.ask_raw(b"\0alice\0alice-secret") == b""
            eventually(lambda: older.metadata() is None)
        (counts,) = (each.authentications for each in broker.broker.socket_server.acceptors if each.endpoint.listener_name == "SASL")
        assert counts.expired_connections_killed_count == 4


def principals(broker: InProcessBroker) -> list[str]:
    return broker.run(lambda: sorted(str(each.client.principal) for each in broker.broker.socket_server.connections()))


@pytest.mark.parametrize(("limits", "files"), [({"max.connections": 8}, 1000), ({"listener.name.sasl.max.connections": 8}, 1000), ({}, 8)])
def test_the_oldest_stranger_leaves_for_a_newer_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], files: int
) -> None:
    monkeypatch.setattr(authentication, "files_for_connections", lambda limit: files)
    with a_broker_in_process(tmp_path / "log", **SASL, **limits) as broker:
        port = port_of(broker, "SASL")
        with Wire(port) as known, Wire(port) as oldest:
            known.log_in()
            with Wire(port) as newer, Wire(port) as newest:
                assert oldest.receive() is None
                for each in (known, newer, newest):
                    if each is not known:
                        each.log_in()
                    assert each.metadata() is not None
                assert principals(broker) == ["User:alice"] * 3


def test_unfinished_requests_of_strangers_take_little_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with a_broker_in_process(
        tmp_path / "log", **SASL, **{"queued.max.request.bytes": 300_000, "socket.request.max.bytes": 300_000}
    ) as broker:
        port = port_of(broker, "SASL")

        def holding(size: int) -> Callable[[], bool]:
            """Whether some connection has kept so many bytes."""
            return lambda: broker.run(lambda: size in {each.kept_bytes for each in broker.broker.socket_server.connections()})

        with Wire(port) as known, Wire(port) as oldest, Wire(port) as newer, Wire(port) as newest:
            known.log_in()
            known.socket.sendall(struct.pack(">i", 200_000) + bytes(150_000))  # unfinished, too
            oldest.socket.sendall(struct.pack(">i", 500_000) + bytes(100_000))  # alone it may take more
            eventually(holding(500_004), what="the first stranger's request has memory of its own")
            newer.socket.sendall(struct.pack(">i", 200_000) + bytes(100_000))
            assert oldest.receive() is None
            eventually(holding(100_004), what="the second stranger's request is kept")
            newest.log_in()
            assert newest.metadata() is not None
            newer.socket.sendall(bytes(100_000))  # no request of a stranger, but all of it
            assert newer.receive() is None
            known.socket.sendall(bytes(50_000))  # now it is a Produce with acks=0, which has no answer
            assert known.metadata() is not None
    assert caplog.text.count("requests of clients that have not authenticated take too much memory") == 1


def test_the_client_ids_of_strangers_take_little_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    small = {"queued.max.request.bytes": 50_000, "socket.request.max.bytes": 50_000}
    with a_broker_in_process(tmp_path / "log", **SASL, **small) as broker:
        port = port_of(broker, "SASL")
        with Wire(port) as known, Wire(port) as oldest, Wire(port) as newer:
            known.client_id = oldest.client_id = newer.client_id = "c" * 30_000
            known.log_in()
            assert oldest.handshake().error_code == ErrorCode.NONE
            assert newer.handshake().error_code == ErrorCode.NONE
            assert oldest.receive() is None
            assert newer.authenticate().error_code == ErrorCode.NONE
            assert newer.metadata() is not None
            assert known.metadata() is not None
    assert caplog.text.count("requests of clients that have not authenticated take too much memory") == 1


def test_no_secret_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with a_broker_in_process(tmp_path / "log", **SASL, **{"connection.failed.authentication.delay.ms": 0}) as broker:
        port = port_of(broker, "SASL")
        with Wire(port) as wrong, Wire(port) as right:
            wrong.handshake()
            wrong.authenticate(b"\0alice\0alice-secret-wrong")
            right.log_in()
    assert "authenticated as User:alice" in caplog.text
    assert "authentication failed: Authentication failed: Invalid username or password; closing the connection" in caplog.text
    assert "-secret" not in caplog.text


def test_a_listener_for_unsecured_tokens_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bearer = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    with a_broker_in_process(tmp_path / "log", **{**SASL, **bearer}):
        pass
    assert [each.levelname for each in caplog.records if "listener SASL accepts unsecured tokens" in each.message] == ["WARNING"]


def test_a_jaas_configuration_without_a_mechanism_in_its_key_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f"KafkaServer {{ {MODULE}.scram.ScramLoginModule required; }};")
    bare = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ottla.jaas.file": str(file),
        "sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required user_bob="bob-secret";',
    }
    with a_broker_in_process(tmp_path / "log", **{**SASL, **bare}) as broker, Wire(port_of(broker, "SASL")) as wire:
        wire.log_in()
        assert principals(broker) == ["User:alice"]
    (warning,) = [each.message for each in caplog.records if "ignores sasl.jaas.config" in each.message]
    assert warning.endswith("needs the mechanism, too, listener.name.sasl.MECHANISM.sasl.jaas.config")
    assert "bob-secret" not in caplog.text
