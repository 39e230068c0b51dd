"""A listener with GSSAPI and a real KDC: clients by ticket, tokens that are none, logins of brokers and commands, and refused starts."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.peer_connection import PeerConnections
from ottla.broker.security.client_security import ConfiguredSecurity, InterBrokerSecurity
from ottla.broker.server import CannotStart
from ottla.client.cluster import Cluster
from ottla.client.errors import NotAuthenticated
from ottla.config.broker import BrokerConfig
from ottla.config.client_properties import ClientProperties
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.replication.ports.peer import PeerAddress, PeerRefused
from tests.integration.test_sasl_clients import address_of
from tests.integration.test_sasl_listener import Wire, port_of
from tests.support.broker_process import eventually
from tests.support.foreign_clients import by_kcat
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.kerberos import Realm, a_realm, jaas, needs_kerberos, needs_kerberos_plugin
from tests.support.peers import LOOPS, run_on

pytestmark = needs_kerberos

SECONDS = 30
LIFETIME_MS = 60_000
RULES = "RULE:[2:$1-$2](client-.*)s/^client-//,RULE:[1:$1](a.*),RULE:[2:$1](kafka)"
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
NO_LAYER = b"\x01\0\0\0"


def listener(keytab: Path, principal: str = "kafka/localhost") -> dict[str, object]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0,SASL://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.sasl.gssapi.sasl.jaas.config": jaas(principal, keytab),
        "connection.failed.authentication.delay.ms": 0,
    }


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with a_realm(tmp_path_factory.mktemp("realm")) as running:
        yield running


@pytest.fixture(scope="module")
def keytab(realm: Realm) -> Path:
    return realm.add("kafka/localhost")


@pytest.fixture(scope="module")
def clients(realm: Realm) -> Path:
    """A keytab with principals of clients, and of a service that is not the broker's."""
    return realm.add("alice", "bob", "client/host.example", "other/localhost")


@pytest.fixture(scope="module")
def alice(realm: Realm, clients: Path) -> Path:
    """A ticket cache."""
    return realm.tickets("alice", clients)


@pytest.fixture(scope="module")
def broker(realm: Realm, keytab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(
        tmp_path_factory.mktemp("kerberos") / "log", **listener(keytab), **{"connections.max.reauth.ms": LIFETIME_MS}
    ) as running:
        yield running


@pytest.fixture
def wire(broker: InProcessBroker) -> Iterator[Wire]:
    with Wire(port_of(broker, "SASL")) as found:
        yield found


def context_of(cache: Path, service: str = "kafka", *, mutual: bool = True) -> Any:
    """A client's context of the Kerberos library."""
    import gssapi

    flag = gssapi.RequirementFlag.mutual_authentication if mutual else gssapi.RequirementFlag.integrity
    return gssapi.SecurityContext(
        name=gssapi.Name(f"{service}@localhost", gssapi.NameType.hostbased_service),
        creds=gssapi.Credentials(usage="initiate", store={"ccache": f"FILE:{cache}"}),
        flags=[flag],
        usage="initiate",
    )


def to_the_layer(send: Callable[[bytes], bytes], context: Any) -> None:
    """The exchange up to the token that chooses a layer."""
    answer = send(context.step())
    if not context.complete:
        assert not context.step(answer)
        answer = send(b"")
    assert context.complete
    assert context.unwrap(answer).message == b"\x01\x01\0\0"


def log_in(wire: Wire, context: Any, choice: bytes = NO_LAYER) -> Any:
    """The answer to the last token."""

    def send(token: bytes) -> bytes:
        answer = wire.authenticate(token)
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
        return bytes(answer.auth_bytes)

    assert wire.handshake("GSSAPI").error_code == ErrorCode.NONE
    to_the_layer(send, context)
    return wire.authenticate(context.wrap(choice, False).message)


def principal_of(broker: InProcessBroker, wire: Wire) -> str:
    port = wire.socket.getsockname()[1]
    (found,) = broker.run(
        lambda: [str(each.client.principal) for each in broker.broker.socket_server.connections() if each.client.client_port == port]
    )
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(("principal", "name"), [("alice", "User:alice"), ("client/host.example", "User:host.example")])
@pytest.mark.parametrize("mutual", [True, False])
def test_a_client_is_known_by_its_short_name(
    broker: InProcessBroker, wire: Wire, realm: Realm, clients: Path, principal: str, name: str, mutual: bool
) -> None:
    answer = log_in(wire, context_of(realm.tickets(principal, clients), mutual=mutual))
    assert (answer.error_code, bytes(answer.auth_bytes), answer.session_lifetime_ms) == (ErrorCode.NONE, b"", LIFETIME_MS)
    assert principal_of(broker, wire) == name
    assert wire.metadata() is not None


def test_the_authorization_id_is_ignored_as_by_apache_kafka(broker: InProcessBroker, wire: Wire, alice: Path) -> None:
    assert log_in(wire, context_of(alice), NO_LAYER + b"bob").error_code == ErrorCode.NONE
    assert principal_of(broker, wire) == "User:alice"


def test_a_client_authenticates_again_as_the_same_principal(wire: Wire, realm: Realm, clients: Path, alice: Path) -> None:
    assert log_in(wire, context_of(alice)).session_lifetime_ms == LIFETIME_MS
    assert log_in(wire, context_of(alice)).session_lifetime_ms == LIFETIME_MS
    assert wire.metadata() is not None
    eventually(lambda: wire.handshake("GSSAPI").error_code == ErrorCode.NONE)  # once a second
    other = context_of(realm.tickets("client/host.example", clients))
    to_the_layer(lambda token: bytes(wire.authenticate(token).auth_bytes), other)
    answer = wire.authenticate(other.wrap(NO_LAYER, False).message)
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.host.example"


@pytest.mark.parametrize("with_handshake", [True, False])
def test_tokens_without_headers_end_without_an_answer(broker: InProcessBroker, wire: Wire, alice: Path, with_handshake: bool) -> None:
    """Without SaslHandshake, these are clients of Kafka 0.9."""
    context = context_of(alice)
    if with_handshake:
        assert wire.handshake("GSSAPI", version=0).error_code == ErrorCode.NONE
    to_the_layer(lambda token: wire.ask_raw(token) or b"", context)
    wire.send(context.wrap(NO_LAYER, False).message)
    assert isinstance(wire.metadata(), MetadataResponse)
    assert principal_of(broker, wire) == "User:alice"


@pytest.mark.parametrize("token", [b"", b"x", b"\0" * 500_000, b"\x60" * 500, b"\x60\x84\x7f\xff\xff\xff\x06\x09", b"NTLMSSP\0"])
def test_a_token_that_is_none_is_refused_without_a_reason(wire: Wire, token: bytes) -> None:
    wire.handshake("GSSAPI")
    answer = wire.authenticate(token)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)
    assert wire.receive() is None


@pytest.mark.parametrize("token", [b"\x60\x03\x06\x01\x00", b"\x60" * 100_000])
def test_a_first_frame_that_only_looks_like_a_token_closes_the_connection(wire: Wire, token: bytes) -> None:
    assert wire.ask_raw(token) is None


def test_a_damaged_ticket_or_authenticator_is_refused(broker: InProcessBroker, alice: Path) -> None:
    token = context_of(alice).step()
    for at in range(len(token) // 3, len(token), 29):
        damaged = token[:at] + bytes((token[at] ^ 0x55,)) + token[at + 1 :]
        for cut in (damaged, token[:at]):
            with Wire(port_of(broker, "SASL")) as wire:
                wire.handshake("GSSAPI")
                assert wire.authenticate(cut).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, at


def test_a_token_of_a_mebibyte_is_not_read(wire: Wire) -> None:
    wire.handshake("GSSAPI")
    wire.socket.sendall(struct.pack(">i", 1 << 20) + bytes(1000))
    assert wire.receive() is None


@pytest.mark.parametrize("choice", [b"\x02\0\x10\0", b"\x04\0\x10\0", b"\0\0\0\0", b"\x01", b""])
def test_a_security_layer_is_refused(wire: Wire, alice: Path, choice: bytes) -> None:
    answer = log_in(wire, context_of(alice), choice)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)
    assert wire.receive() is None


def test_a_choice_without_a_signature_is_refused(wire: Wire, alice: Path) -> None:
    wire.handshake("GSSAPI")
    to_the_layer(lambda token: bytes(wire.authenticate(token).auth_bytes), context_of(alice))
    assert wire.authenticate(NO_LAYER).error_message == REFUSED


def test_a_replay_closes_the_connection_so_that_a_client_tries_again(broker: InProcessBroker, wire: Wire, alice: Path) -> None:
    token = context_of(alice).step()
    wire.handshake("GSSAPI")
    assert wire.authenticate(token).error_code == ErrorCode.NONE
    with Wire(port_of(broker, "SASL")) as again:
        again.handshake("GSSAPI")
        assert again.authenticate(token) is None


def test_the_log_has_the_reason_that_a_client_does_not_read(
    realm: Realm,
    keytab: Path,
    clients: Path,
    alice: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another service, a principal without a rule, no token, an ended ticket: a line each."""
    caplog.set_level("INFO")
    short = realm.tickets("alice", clients, lifetime="2s")
    ended = context_of(short).step()
    began = time.monotonic()
    with a_broker_in_process(tmp_path / "log", **listener(keytab)) as broker:
        port = port_of(broker, "SASL")
        with Wire(port) as wire:
            wire.handshake("GSSAPI")
            assert wire.authenticate(context_of(alice, "other").step()).error_message == REFUSED
        with Wire(port) as wire:
            assert log_in(wire, context_of(realm.tickets("bob", clients))).error_message == REFUSED
        with Wire(port) as wire:
            wire.handshake("GSSAPI")
            assert wire.authenticate(b"\x1b[2J\r\nforged line").error_message == REFUSED
        strict = tmp_path / "krb5.conf"
        strict.write_text(realm.configuration.read_text().replace("[libdefaults]", "[libdefaults]\n    clockskew = 1"))
        monkeypatch.setenv("KRB5_CONFIG", str(strict))
        eventually(lambda: time.monotonic() > began + 4, what="the ticket has ended")
        with Wire(port) as wire:
            wire.handshake("GSSAPI")
            assert wire.authenticate(ended).error_message == REFUSED
    lines = [each.getMessage() for each in caplog.records if "authentication failed" in each.getMessage()]
    reasons = ("other/localhost@OTTLA.TEST", "no rule of RULE:", "token", "")
    assert len(lines) == len(reasons)
    for line, reason in zip(lines, reasons, strict=True):
        assert reason in line
        assert line.isprintable()
        assert len(line) < 600
    assert "expired" in lines[3] or "skew" in lines[3]
    assert "Traceback" not in caplog.text


@needs_kerberos_plugin
def test_kcat_writes_and_reads(broker: InProcessBroker, realm: Realm, clients: Path, tmp_path: Path) -> None:
    settings = {
        "bootstrap.servers": address_of(broker, "SASL"),
        "broker.address.family": "v4",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": "alice",
        "sasl.kerberos.keytab": str(clients),
    }
    assert by_kcat(settings, "by-kcat", "one\ntwo\n", tmp_path) == "one\ntwo\n"


def command(given: Mapping[str, str]) -> ConfiguredSecurity:
    return ConfiguredSecurity(ClientProperties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", **given}))


def test_commands_log_in_by_keytab_and_by_ticket_cache(broker: InProcessBroker, clients: Path, alice: Path) -> None:
    by_cache = f'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true ticketCache="{alice}" serviceName=kafka;'
    for given in (
        {"sasl.jaas.config": jaas("alice", clients)},
        {"sasl.jaas.config": by_cache},
        {"sasl.kerberos.keytab": str(clients), "sasl.kerberos.principal": "client/host.example"},
    ):
        with Cluster(address_of(broker, "SASL"), security=command(given)) as cluster:
            answer = cluster.any_connection().ask(MetadataRequest(topics=[]), MetadataResponse)
            assert answer.cluster_id == broker.services.cluster_id


def test_a_command_without_a_ticket_says_why(broker: InProcessBroker, tmp_path: Path) -> None:
    nowhere = f'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true ticketCache="{tmp_path}/x" serviceName=kafka;'
    login = command({"sasl.jaas.config": nowhere})
    with (
        pytest.raises(NotAuthenticated, match="GSSAPI with it failed: ") as failed,
        Cluster(address_of(broker, "SASL"), security=login) as cluster,
    ):
        cluster.any_connection()
    assert "\n" not in str(failed.value)


def between_brokers(properties: Mapping[str, object]) -> InterBrokerSecurity:
    changed = {"inter.broker.listener.name": "SASL", "sasl.mechanism.inter.broker.protocol": "GSSAPI"}
    config = BrokerConfig({name: str(value) for name, value in {**properties, **changed}.items()} | {"log.dirs": "unused"})
    return InterBrokerSecurity(config, "SASL", bytes, lambda: 0)


@pytest.mark.parametrize("loop", LOOPS)
def test_brokers_log_in_at_each_other(broker: InProcessBroker, keytab: Path, loop: str) -> None:
    async def scenario() -> None:
        to = PeerConnections(security=between_brokers(listener(keytab)))
        peer = to(lambda: PeerAddress("localhost", port_of(broker, "SASL")), "broker-1")
        answer = await peer.request(ApiKey.METADATA, 9, MetadataRequest(topics=[]), timeout_ms=SECONDS * 1000)
        assert isinstance(answer, MetadataResponse)
        assert answer.cluster_id == broker.services.cluster_id
        await peer.close()

    run_on(loop)(scenario)


def test_a_broker_without_a_kdc_says_so(broker: InProcessBroker, realm: Realm) -> None:
    fresh = realm.add("kafka/fresh")

    async def scenario() -> None:
        to = PeerConnections(security=between_brokers(listener(fresh, "kafka/fresh")))
        peer = to(lambda: PeerAddress("localhost", port_of(broker, "SASL")), "broker-1")
        with pytest.raises(PeerRefused, match=r"GSSAPI with it failed: .*KDC"):
            await peer.request(ApiKey.METADATA, 9, MetadataRequest(topics=[]), timeout_ms=SECONDS * 1000)

    realm.stop()
    try:
        run_on("uvloop")(scenario)
    finally:
        realm.start()


def test_a_listener_that_cannot_be_is_refused_in_one_line(keytab: Path, realm: Realm, tmp_path: Path) -> None:
    other = realm.add("kafka/other")
    refused = {
        "keytab": (listener(tmp_path / "absent"), f"GSSAPI with keyTab={tmp_path}/absent: No such file or directory"),
        "principal": (listener(other), f"GSSAPI with keyTab={other} and principal=kafka/localhost@OTTLA.TEST: "),
        "rule": (
            {**listener(keytab), "sasl.kerberos.principal.to.local.rules": "DEFAULT,RULE:[1:$7]"},
            "Invalid value DEFAULT,RULE:[1:$7] for configuration sasl.kerberos.principal.to.local.rules: RULE:[1:$7]: the format has",
        ),
    }
    for name, (properties, line) in refused.items():
        with pytest.raises(CannotStart) as error, a_broker_in_process(tmp_path / name, **properties):
            pass
        assert str(error.value).startswith(line)
        assert "\n" not in str(error.value)
        assert not (tmp_path / name).exists()
