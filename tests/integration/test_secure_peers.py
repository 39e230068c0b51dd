"""Connections to other brokers over TLS and SASL, against a listener of a broker."""

from __future__ import annotations

import asyncio
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from ottla.broker.network.peer_connection import PeerConnections
from ottla.broker.security.client_security import InterBrokerSecurity
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.client_security import ClientSecurity
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.replication.ports.peer import Peer, PeerAddress, PeerRefused, PeerUnavailable
from tests.support.certificates import Identity
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.peers import LOOPS, run_on, until

MODULE = "org.apache.kafka.common.security"
PLAIN = f'{MODULE}.plain.PlainLoginModule required username="broker" password="broker-secret" user_broker="broker-secret";'
OAUTHBEARER = f'{MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
SECONDS = 20_000


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


def stores(identity: Identity, authority: Identity) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
    }


@pytest.fixture(scope="module")
def properties(authority: Identity) -> dict[str, str]:
    """What all brokers of the cluster have in their files."""
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL", "BOTH")),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL:SASL_PLAINTEXT,BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/L,DEFAULT",
        **{f"listener.name.{each}.plain.sasl.jaas.config": PLAIN for each in ("sasl", "both")},
        **{f"listener.name.{each}.oauthbearer.sasl.jaas.config": OAUTHBEARER for each in ("sasl", "both")},
        **stores(Identity("CN=Broker", authority), authority),
    }


@pytest.fixture(scope="module")
def broker(properties: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path_factory.mktemp("secure") / "log", **properties) as running:
        yield running


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    return run_on(request.param)


def security(properties: dict[str, str], listener: str, mechanism: str = "PLAIN", **changes: str) -> ClientSecurity:
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    more = {"inter.broker.listener.name": listener, "sasl.mechanism.inter.broker.protocol": mechanism}
    config = BrokerConfig({**properties, **more, **changed})
    return InterBrokerSecurity(config, listener, bytes, lambda: time.time_ns() // 1_000_000)


def address(broker: InProcessBroker, listener: str) -> PeerAddress:
    text = next(each for each in broker.broker.addresses if each.startswith(f"{listener}:"))
    return PeerAddress("127.0.0.1", int(text.rpartition(":")[2]))


async def metadata(peer: Peer) -> MetadataResponse:
    response = await peer.request(ApiKey.METADATA, 9, MetadataRequest(topics=[]), timeout_ms=SECONDS)
    assert isinstance(response, MetadataResponse)
    return response


def principals(broker: InProcessBroker, listener: str) -> set[str]:
    connections = broker.run(broker.broker.socket_server.connections)
    return {str(each.client.principal) for each in connections if each.client.listener_name == listener}


@pytest.mark.parametrize(
    ("listener", "mechanism", "principal"),
    [
        ("PLAINTEXT", "PLAIN", "User:ANONYMOUS"),
        ("SSL", "PLAIN", "User:broker"),
        ("SASL", "PLAIN", "User:broker"),
        ("BOTH", "PLAIN", "User:broker"),
        ("BOTH", "OAUTHBEARER", "User:broker"),
    ],
)
def test_a_peer_is_known_by_the_broker_of_each_protocol(
    run, broker: InProcessBroker, properties: dict[str, str], listener: str, mechanism: str, principal: str
) -> None:
    async def scenario() -> None:
        to = PeerConnections(security=security(properties, listener, mechanism))
        for negotiate in (False, True):
            peer = to(lambda: address(broker, listener), "broker-1", negotiate=negotiate)
            assert (await metadata(peer)).cluster_id == broker.services.cluster_id
            assert await asyncio.to_thread(principals, broker, listener) == {principal}
            topic = FetchTopic(topic=uuid.uuid4().hex, partitions=[FetchPartition(partition=0)])
            answer = await peer.fetch(12, FetchRequest(max_wait_ms=0, topics=[topic]), timeout_ms=SECONDS)
            assert answer.error_code == ErrorCode.NONE
            await peer.close()
        await until(lambda: not principals(broker, listener))

    run(scenario)


def refusal(broker: InProcessBroker, security: ClientSecurity, listener: str) -> PeerUnavailable:
    found: list[PeerUnavailable] = []

    async def scenario() -> None:
        peer = PeerConnections(security=security)(lambda: address(broker, listener), "broker-1")
        with pytest.raises(PeerUnavailable) as refused:
            await metadata(peer)
        assert not peer.is_connected
        found.append(refused.value)

    run_on("uvloop")(scenario)
    assert "secret" not in str(found[0])
    return found[0]


def test_a_certificate_of_another_authority_is_not_accepted(broker: InProcessBroker, properties: dict[str, str]) -> None:
    other = Identity("CN=other")
    mine = {**properties, **stores(other, other)}
    refused = refusal(broker, security(mine, "SSL"), "SSL")
    assert isinstance(refused, PeerRefused)
    assert "ssl.truststore" in str(refused)


def test_the_name_of_the_certificate_is_compared_unless_that_is_off(run, broker: InProcessBroker, properties: dict[str, str]) -> None:
    async def scenario() -> None:
        at = PeerAddress("127.1", address(broker, "SSL").port)  # another text for 127.0.0.1
        peer = PeerConnections(security=security(properties, "SSL"))(lambda: at, "broker-1")
        with pytest.raises(PeerUnavailable, match=r"not accepted: .*127\.1"):
            await metadata(peer)
        lenient = security(properties, "SSL", ssl_endpoint_identification_algorithm="")
        peer = PeerConnections(security=lenient)(lambda: at, "broker-1")
        await metadata(peer)
        await peer.close()

    run(scenario)


def test_a_wrong_password_is_one_line(broker: InProcessBroker, properties: dict[str, str]) -> None:
    wrong = PLAIN.replace('password="broker-secret"', 'password="no-secret"')
    mine = {**properties, "listener.name.both.plain.sasl.jaas.config": wrong}
    refused = refusal(broker, security(mine, "BOTH"), "BOTH")
    assert isinstance(refused, PeerRefused)
    assert str(refused).endswith("authentication by PLAIN failed: Authentication failed: Invalid username or password")


def test_a_mechanism_that_is_not_offered_is_one_line(broker: InProcessBroker, properties: dict[str, str]) -> None:
    scram = f'{MODULE}.scram.ScramLoginModule required username="broker" password="broker-secret";'
    mine = {
        **properties,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.both.scram-sha-256.sasl.jaas.config": scram,
    }
    refused = refusal(broker, security(mine, "BOTH", "SCRAM-SHA-256"), "BOTH")
    assert "does not offer the SASL mechanism SCRAM-SHA-256, but PLAIN, OAUTHBEARER" in str(refused)


@pytest.mark.parametrize(("ours", "theirs"), [("SASL", "PLAINTEXT"), ("SSL", "PLAINTEXT"), ("PLAINTEXT", "SASL")])
def test_a_listener_of_another_protocol_is_unavailable(broker: InProcessBroker, properties: dict[str, str], ours: str, theirs: str) -> None:
    assert str(address(broker, theirs).port) in str(refusal(broker, security(properties, ours), theirs))


def test_a_changed_certificate_is_used_by_the_next_connection(tmp_path: Path, authority: Identity, properties: dict[str, str]) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_text(authority.certificate_pem)
    mine = {**properties, "ssl.truststore.location": str(trust)}
    del mine["ssl.truststore.certificates"]
    secured = security(mine, "SSL")
    first = secured.context()
    assert secured.context() is first
    trust.write_text(Identity("CN=other").certificate_pem)
    assert secured.context() is not first
    assert secured.context().verify_mode is ssl.CERT_REQUIRED


def test_a_damaged_file_leaves_the_earlier_certificates_for_the_next_connection(
    tmp_path: Path, authority: Identity, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_text(authority.certificate_pem)
    mine = {**properties, "ssl.truststore.location": str(trust)}
    del mine["ssl.truststore.certificates"]
    secured = security(mine, "SSL")
    first = secured.context()
    trust.write_text("")
    assert secured.context() is first
    assert secured.context() is first
    (line,) = caplog.messages
    assert line.startswith(f"listener SSL, between brokers: ssl.truststore.location={trust}: no certificate in PEM was found; new")
    trust.write_text(authority.certificate_pem * 2)
    assert secured.context() is not first
    trust.write_text("nothing")
    with pytest.raises(ConfigError, match="no certificate in PEM"):
        security(mine, "SSL").context()


def test_a_session_is_renewed_on_the_same_connection_before_it_ends(run, properties: dict[str, str], tmp_path: Path) -> None:
    limited = {**properties, "connections.max.reauth.ms": "1500"}

    async def scenario() -> None:
        began = asyncio.get_running_loop().time()
        peer = PeerConnections(security=security(limited, "BOTH"))(lambda: address(broker, "BOTH"), "broker-1")
        while asyncio.get_running_loop().time() < began + 3.5:
            await metadata(peer)
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.6)  # longer than a session: the renewal comes late, but before the request
        await metadata(peer)
        await peer.close()
        assert broker.run(accepted) == 1

    def accepted() -> int:
        return sum(each.accepted for each in broker.broker.socket_server.acceptors if each.endpoint.listener_name == "BOTH")

    with a_broker_in_process(tmp_path / "log", **limited) as broker:
        run(scenario)
