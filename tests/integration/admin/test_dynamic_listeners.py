"""Limits and listeners change while the broker runs (KIP-226, KIP-612)."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.server import CannotStart
from ottla.controller.znodes.layout import broker_id_path
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.integration.test_sasl_listener import Wire, port_of
from tests.support.admin_requests import BROKER, DELETE, OK, SET, change
from tests.support.apache_kafka.ports import free_ports
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.scram_client import ScramClient
from tests.support.wire_client import WireClient, a_wire_client

PROTOCOLS = "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, broker_id=0, listener_security_protocol_map=PROTOCOLS) as running:
        yield running


def ports(client: WireClient) -> list[int]:
    return [each.port for each in client.ask(MetadataRequest(topics=[]), 9).brokers]


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def registered(broker: InProcessBroker) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(broker.run(broker.broker.store.get, broker_id_path(0))[0])
    return found


def test_a_listener_is_added_made_known_and_removed(broker: InProcessBroker) -> None:
    (second,) = free_ports(1)
    with a_wire_client(broker.port) as client:
        both = f"PLAINTEXT://127.0.0.1:{broker.port},SECOND://127.0.0.1:{second}"
        assert change(client, BROKER, "0", ("listeners", SET, both)) == OK
        eventually(lambda: is_open(second), what="the second listener")

        def answers_with_its_own_port() -> bool:
            with a_wire_client(second) as newcomer:
                return ports(newcomer) == [second]

        eventually(answers_with_its_own_port, what="the registration of the second listener")
        assert ports(client) == [broker.port]
        assert change(client, BROKER, "0", ("listeners", DELETE, None)) == OK
        eventually(lambda: not is_open(second), what="the end of the second listener")
        assert ports(client) == [broker.port]


def test_a_sasl_listener_is_added_with_the_mechanisms_that_are_in_force(tmp_path: Path) -> None:
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    protocols = "PLAINTEXT:PLAINTEXT,SECOND:SASL_PLAINTEXT"
    (second,) = free_ports(1)
    settings = {"listener_security_protocol_map": protocols, "password_encoder_secret": "encoder"}
    with a_broker_in_process(tmp_path, broker_id=0, **settings) as broker, a_wire_client(broker.port) as client:
        both = f"PLAINTEXT://127.0.0.1:{broker.port},SECOND://127.0.0.1:{second}"
        changes = (
            ("listener.name.second.sasl.enabled.mechanisms", SET, "PLAIN"),
            ("listener.name.second.plain.sasl.jaas.config", SET, line),
            ("listeners", SET, both),
        )
        assert change(client, BROKER, "0", *changes) == OK
        eventually(lambda: is_open(second), what="the second listener")
        with a_wire_client(second) as newcomer:
            offered = newcomer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (offered.error_code, offered.mechanisms) == (ErrorCode.NONE, ["PLAIN"])


def test_the_users_of_a_listener_may_be_in_the_dynamic_configuration_alone(tmp_path: Path) -> None:
    """Operators store passwords there, so that they are encrypted."""
    name = "listener.name.second.plain.sasl.jaas.config"
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    settings = {
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,SECOND:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "PLAIN",
        "password_encoder_secret": "encoder",
    }
    both = {**settings, "listeners": "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0"}
    with a_broker_in_process(tmp_path, broker_id=0, **settings) as broker, a_wire_client(broker.port) as client:
        assert change(client, BROKER, "0", (name, SET, line)) == OK
    with a_broker_in_process(tmp_path, broker_id=0, **both) as broker, a_wire_client(broker.port) as client:
        with Wire(port_of(broker, "SECOND")) as user:
            user.log_in()
        assert change(client, BROKER, "0", (name, DELETE, None)) == OK
    with pytest.raises(CannotStart, match=f"for configuration {name}: "), a_broker_in_process(tmp_path, broker_id=0, **both):
        pass


def test_an_added_listener_answers_for_users_that_do_not_exist_by_the_secret_of_the_cluster(tmp_path: Path) -> None:
    """As every other broker and a later run of this one do, so that answers do not tell which users exist."""
    settings = {
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,SECOND:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "SCRAM-SHA-256",
        "listener.name.second.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    }
    (second,) = free_ports(1)

    def salt_of_nobody(port: int) -> bytes:
        with Wire(port) as stranger:
            assert stranger.handshake("SCRAM-SHA-256").error_code == ErrorCode.NONE
            answer = bytes(stranger.authenticate(ScramClient("SCRAM-SHA-256", "nobody", "").first).auth_bytes)
        return answer.split(b",")[1]

    with a_broker_in_process(tmp_path, broker_id=0, **settings) as broker, a_wire_client(broker.port) as client:
        both = f"PLAINTEXT://127.0.0.1:{broker.port},SECOND://127.0.0.1:{second}"
        assert change(client, BROKER, "0", ("listeners", SET, both)) == OK
        eventually(lambda: is_open(second), what="the second listener")
        salt = salt_of_nobody(second)
        assert change(client, BROKER, "0", ("listeners", DELETE, None)) == OK
    settings["listeners"] = "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0"
    with a_broker_in_process(tmp_path, broker_id=0, **settings) as broker:
        assert salt_of_nobody(port_of(broker, "SECOND")) == salt


def test_a_listener_with_another_principal_builder_is_refused_before_the_change_is_stored(broker: InProcessBroker) -> None:
    name = "listener.name.second.principal.builder.class"
    both = f"PLAINTEXT://127.0.0.1:{broker.port},SECOND://127.0.0.1:0"
    with a_wire_client(broker.port) as client:
        code, message = change(client, BROKER, "0", (name, SET, "a.B"), ("listeners", SET, both))
        assert code == "INVALID_REQUEST"
        assert f"Invalid value a.B for configuration {name}: only " in (message or "")
        assert change(client, BROKER, "0", ("num.io.threads", SET, "9")) == OK


def test_a_principal_builder_in_the_stored_configuration_alone_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker that ignored it would know the clients of the listener by other principals than the operator meant."""
    (second,) = free_ports(1)
    refusal = "a.B for configuration listener.name.second.principal.builder.class: only "
    with a_broker_in_process(tmp_path, broker_id=0, listener_security_protocol_map=PROTOCOLS) as broker:
        both = f"PLAINTEXT://127.0.0.1:{broker.port},SECOND://127.0.0.1:{second}"
        stored = {"listener.name.second.principal.builder.class": "a.B", "listeners": both}
        admin = broker.services.administration.config_admin
        broker.run(admin.alter_entity_config, "brokers", "0", lambda _: stored)  # as another program may
        eventually(lambda: refusal in caplog.text, what="the line in the log")
        assert not is_open(second)
    with pytest.raises(CannotStart, match=refusal), a_broker_in_process(tmp_path, broker_id=0, listener_security_protocol_map=PROTOCOLS):
        pass


def test_a_listener_that_cannot_be_bound_is_logged_and_not_registered(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka registers it. Its clients are sent to an address where another program listens."""
    with socket.socket() as taken, a_wire_client(broker.port) as client:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        both = f"PLAINTEXT://127.0.0.1:{broker.port},SECOND://127.0.0.1:{port}"
        timestamp = registered(broker)["timestamp"]
        assert change(client, BROKER, "0", ("listeners", SET, both)) == OK
        eventually(lambda: f"listener SECOND://127.0.0.1:{port} cannot be added and is not registered" in caplog.text, what="the line")
        eventually(lambda: registered(broker)["timestamp"] != timestamp, what="the registration")
        assert registered(broker)["endpoints"] == [f"PLAINTEXT://127.0.0.1:{broker.port}"]
        assert ports(client) == [broker.port]
    with a_wire_client(broker.port) as client:
        assert change(client, BROKER, "0", ("listeners", DELETE, None)) == OK
        assert change(client, BROKER, "0", ("listeners", SET, both)) == OK
        eventually(lambda: is_open(port), what="the second listener")
        eventually(lambda: len(registered(broker)["endpoints"]) == 2, what="its registration")


@pytest.mark.parametrize(
    ("key", "value", "limit", "seen"),
    [
        ("max.connections", "7", "max_connections", 7),
        ("max.connections.per.ip", "5", "max_connections_per_ip", 5),
        ("num.network.threads", "4", "num_network_threads", 4),
        ("max.connection.creation.rate", "50", "max_connection_creation_rate", 50),
        ("listener.name.plaintext.max.connections", "6", "listener_max_connections", {"PLAINTEXT": 6}),
    ],
)
def test_limits_of_connections_change_at_once(broker: InProcessBroker, key: str, value: str, limit: str, seen: Any) -> None:
    with a_wire_client(broker.port) as client:
        assert change(client, BROKER, "0", (key, SET, value)) == OK
    assert broker.run(lambda: getattr(broker.broker.socket_server.limits, limit)) == seen
