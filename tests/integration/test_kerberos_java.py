"""GSSAPI beside Apache Kafka: its tools log in at our listener, our client at its listener, and both listeners answer alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.client.cluster import Cluster
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.integration.test_kerberos import NO_LAYER, REFUSED, command, context_of, listener, log_in, to_the_layer
from tests.integration.test_sasl_clients import address_of
from tests.integration.test_sasl_listener import Wire, port_of
from tests.support.acl_requests import AUTHORIZER
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.apache_kafka.class_archives import BROKER, TOOLS, using
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.apache_kafka.tools import ToolJvm
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.java_pair import CONSUMER, PRODUCER, TOPICS
from tests.support.kerberos import Realm, a_realm, jaas, needs_kerberos

pytestmark = [*needs_apache_kafka, needs_kerberos, pytest.mark.slow, pytest.mark.timeout(300)]

ACLS = "kafka.admin.AclCommand"
SECONDS = 90


class Pair(NamedTuple):
    """A realm, a broker of ours in it, and the keytab of clients. `options` point a JVM to the realm."""

    realm: Realm
    broker: InProcessBroker
    keytab: Path
    clients: Path
    options: tuple[str, ...]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with a_realm(tmp_path_factory.mktemp("realm")) as realm:
        keytab, clients = realm.add("kafka/localhost"), realm.add("alice", "bob", "client/host.example", "other/localhost")
        options = (f"-Djava.security.krb5.conf={realm.configuration}", "-Dsun.security.krb5.disableReferrals=true")
        more = {"authorizer.class.name": AUTHORIZER, "super.users": "User:alice;User:ANONYMOUS"}
        with a_broker_in_process(tmp_path_factory.mktemp("ours") / "log", **listener(keytab), **more) as broker:
            yield Pair(realm, broker, keytab, clients, options)


@pytest.fixture(scope="module")
def apache(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of the listener with GSSAPI of a broker of Apache Kafka."""
    (sasl,) = free_ports(1)
    properties = {name: str(value) for name, value in listener(pair.keytab).items()}

    def listeners(_: int, port: int) -> dict[str, str]:
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SASL://localhost:{sasl}",
        }

    options = (*QUICK_OPTIONS, *using(BROKER), *pair.options)
    with ApacheKafka(tmp_path_factory.mktemp("apache"), 1, properties, options=options, config_of=listeners):
        yield sasl


def test_javas_tools_log_in_by_keytab(pair: Pair, tmp_path: Path) -> None:
    files = {}
    for principal in ("alice", "client/host.example"):
        files[principal] = tmp_path / f"{principal.partition('/')[0]}.properties"
        login = jaas(principal, pair.clients)
        files[principal].write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.jaas.config={login}\n")
    alice, other = (str(file) for file in files.values())
    address = ("--bootstrap-server", address_of(pair.broker, "SASL"))
    with ToolJvm((*using(TOOLS), *pair.options)) as jvm:

        def run(tool: str, *arguments: str, text: str = "") -> tuple[int, str]:
            ended = jvm.run((tool, *address, *arguments), text, SECONDS)
            return ended.returncode, ended.stdout + ended.stderr

        made = run(TOPICS, "--command-config", alice, "--create", "--topic", "by-java")
        assert made[0] == 0, made[1]
        written = run(PRODUCER, "--producer.config", alice, "--topic", "by-java", text="one\ntwo\n")
        assert written[0] == 0, written[1]
        reading = ("--topic", "by-java", "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000", "--group", "readers")
        denied = run(CONSUMER, "--consumer.config", other, *reading)
        assert "AuthorizationException" in denied[1]
        granted = ("--add", "--allow-principal", "User:host.example", "--operation", "Read", "--operation", "Describe")
        for resource in (("--topic", "by-java"), ("--group", "readers")):
            added = run(ACLS, "--command-config", alice, *granted, *resource)
            assert added[0] == 0, added[1]
        read = run(CONSUMER, "--consumer.config", other, *reading)
        assert read[1].startswith("one\ntwo\n"), read[1]


def test_our_client_logs_in_at_a_broker_of_apache_kafka(pair: Pair, apache: int) -> None:
    with Cluster(f"localhost:{apache}", security=command({"sasl.jaas.config": jaas("alice", pair.clients)})) as cluster:
        answer = cluster.any_connection().ask(MetadataRequest(topics=[]), MetadataResponse)
        assert [each.port for each in answer.brokers] == [apache]


def outcome(answer: Any) -> object:
    """What matters of an answer to SaslAuthenticate; None for a closed connection."""
    if answer is None:
        return None
    return (answer.error_code, answer.error_message, bytes(answer.auth_bytes), answer.session_lifetime_ms)


def outcomes(port: int, pair: Pair) -> dict[str, object]:
    """The last answer of several exchanges, and whether the client is served after it."""
    alice = pair.realm.tickets("alice", pair.clients)
    found: dict[str, object] = {}

    def note(case: str, wire: Wire, answer: Any) -> None:
        served = answer is not None and answer.error_code == 0 and wire.metadata() is not None
        found[case] = (outcome(answer), served)

    for case, choice in {
        "no layer": NO_LAYER,
        "another authorization id": NO_LAYER + b"bob",
        "a buffer": b"\x01\x01\0\0",
        "integrity": b"\x02\x01\0\0",
        "privacy": b"\x04\x01\0\0",
        "any layer": b"\x07\x01\0\0",
        "none": b"\0\0\0\0",
    }.items():
        for mutual in (True, False):
            with Wire(port) as wire:
                note(f"{case}, mutual={mutual}", wire, log_in(wire, context_of(alice, mutual=mutual), choice))
    tokens = {
        "no token": b"",
        "nonsense": b"nonsense",
        "a long token": b"\x60" * 100_000,
        "a ticket for another service": context_of(alice, "other").step(),
        "half a token": context_of(alice).step()[:300],
    }
    for case, token in tokens.items():
        with Wire(port) as wire:
            wire.handshake("GSSAPI")
            note(case, wire, wire.authenticate(token))
    token = context_of(alice).step()
    with Wire(port) as wire, Wire(port) as again:
        wire.handshake("GSSAPI")
        again.handshake("GSSAPI")
        found["the first use of a token"] = wire.authenticate(token).error_code
        note("a replay", again, again.authenticate(token))
    for case in ("SaslHandshake 0", "no SaslHandshake"):
        with Wire(port) as wire:
            context = context_of(alice)
            if case == "SaslHandshake 0":
                wire.handshake("GSSAPI", version=0)
            to_the_layer(lambda token, wire=wire: wire.ask_raw(token) or b"", context)
            wire.send(context.wrap(NO_LAYER, False).message)
            found[case] = wire.metadata() is not None
    return found


def test_both_listeners_answer_alike(pair: Pair, apache: int) -> None:
    theirs = outcomes(apache, pair)
    ours = outcomes(port_of(pair.broker, "SASL"), pair)
    refused = (int(ErrorCode.SASL_AUTHENTICATION_FAILED), REFUSED, b"", 0)
    assert (ours.pop("a replay"), theirs.pop("a replay")) == ((None, False), (refused, False))
    assert ours == theirs
    assert ours["no layer, mutual=True"] == ours["another authorization id, mutual=False"] == ((0, "", b"", 0), True)


def test_a_principal_without_a_rule_fails_at_once_and_at_apache_kafka_a_request_later(pair: Pair, apache: int) -> None:
    bob = pair.realm.tickets("bob", pair.clients)
    with Wire(apache) as wire:
        assert log_in(wire, context_of(bob)).error_code == 0
        assert wire.metadata() is None
    with Wire(port_of(pair.broker, "SASL")) as wire:
        assert log_in(wire, context_of(bob)).error_code != 0
