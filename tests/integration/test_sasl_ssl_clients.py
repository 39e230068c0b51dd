"""Foreign clients at a SASL_SSL listener: SCRAM, PLAIN and signed tokens over TLS, with and without a certificate of their own."""

from __future__ import annotations

import json
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as confluent
import jwt
import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokenProvider
from aiokafka.helpers import create_ssl_context
from confluent_kafka.admin import AdminClient, NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric import ec

from tests.integration.test_sasl_clients import MODULE, address_of
from tests.support.certificates import Identity
from tests.support.foreign_clients import SECONDS, by_aiokafka, by_confluent, by_kafka_python, by_kcat
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

with warnings.catch_warnings():  # kafka-python reads its schemas through a function that Python 3.11 wants replaced
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.net.sasl.oauth import AbstractTokenProvider

PASSWORD = "alice-secret"
VALUES = [b"small", b"x" * 16_384, b"y" * 700_000, *(b"%d" % number * 50 for number in range(100))]
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ISSUER = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module")
def files(authority: Identity, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The paths of the files of broker, client and issuer."""
    directory = tmp_path_factory.mktemp("files")
    certificate, key = Identity("CN=cert-alice", authority).files(directory, "alice")
    server = Identity("CN=localhost", authority)
    public = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(ISSUER.public_key()))
    texts = {
        "ca.pem": authority.certificate_pem,
        "broker.pem": server.key_pem() + server.certificate_pem,
        "jwks.json": json.dumps({"keys": [{**public, "kid": "one"}]}),
    }
    for name, text in texts.items():
        (directory / name).write_text(text)
    return {"certificate": str(certificate), "key": str(key), **{name: str(directory / name) for name in texts}}


@pytest.fixture(scope="module", params=["none", "required"])
def broker(request: pytest.FixtureRequest, files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """A broker whose listener wants no certificate, or one that is trusted, from its clients."""
    lines = {
        "plain": f'{MODULE}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
        "scram-sha-256": f"{MODULE}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{MODULE}.scram.ScramLoginModule required;",
        "oauthbearer": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    with a_broker_in_process(
        tmp_path_factory.mktemp("data") / "log",
        listeners="PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,UNSECURED://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,UNSECURED:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": files["broker.pem"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": files["ca.pem"],
            "listener.name.clients.ssl.client.auth": request.param,
            "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            "listener.name.clients.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"file:{files['jwks.json']}",
            "listener.name.clients.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
            "listener.name.unsecured.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.unsecured.oauthbearer.sasl.jaas.config": lines["oauthbearer"],
            "connections.max.reauth.ms": 5000,
        },
        **{f"listener.name.clients.{name}.sasl.jaas.config": line for name, line in lines.items()},
    ) as running:
        admin = AdminClient({"bootstrap.servers": address_of(running, "PLAINTEXT")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upsertion = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])["alice"].result(SECONDS)
        yield running


@pytest.fixture
def topic(broker: InProcessBroker) -> str:
    name = f"secured-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": address_of(broker, "PLAINTEXT")})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS)
    return name


def signed_token(audience: str = "kafka") -> tuple[str, float]:
    now = time.time()
    claims = {"sub": "alice", "iat": now, "exp": now + 600, "aud": audience}
    return jwt.encode(claims, ISSUER, "ES256", headers={"kid": "one"}), now + 600


class TokensOfKafkaPython(AbstractTokenProvider):
    """Signed tokens."""

    def token(self) -> str:
        return signed_token()[0]


def librdkafka(broker: InProcessBroker, files: dict[str, str], mechanism: str) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": address_of(broker, "CLIENTS"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": files["ca.pem"],
        "ssl.certificate.location": files["certificate"],
        "ssl.key.location": files["key"],
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**settings, "oauth_cb": lambda _: signed_token()}
    return {**settings, "sasl.username": "alice", "sasl.password": PASSWORD}


def principals(broker: InProcessBroker) -> set[str]:
    connections = broker.run(broker.broker.socket_server.connections)
    return {str(each.client.principal) for each in connections if each.client.listener_name == "CLIENTS"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_confluent_kafka_writes_and_reads(broker: InProcessBroker, files: dict[str, str], topic: str, mechanism: str) -> None:
    def speaks_as_alice() -> None:
        assert principals(broker) == {"User:alice"}  # not that of the certificate

    assert by_confluent(librdkafka(broker, files, mechanism), topic, VALUES, speaks_as_alice) == VALUES


def test_a_token_for_another_audience_is_refused(broker: InProcessBroker, files: dict[str, str]) -> None:
    errors: list[Any] = []
    settings = {**librdkafka(broker, files, "OAUTHBEARER"), "oauth_cb": lambda _: signed_token("other"), "error_cb": errors.append}
    client = AdminClient(settings)
    deadline = time.monotonic() + SECONDS
    while not errors and time.monotonic() < deadline:
        client.poll(0.1)
    assert errors[0].code() == confluent.KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_kafka_python_writes_and_reads(broker: InProcessBroker, files: dict[str, str], topic: str, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": address_of(broker, "CLIENTS"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": files["ca.pem"],
        "ssl_certfile": files["certificate"],
        "ssl_keyfile": files["key"],
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = TokensOfKafkaPython()
    else:
        settings |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    assert by_kafka_python(settings, topic, VALUES) == VALUES


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_aiokafka_writes_and_reads(broker: InProcessBroker, files: dict[str, str], topic: str, mechanism: str) -> None:
    class Tokens(AiokafkaTokenProvider):
        async def token(self) -> str:
            return signed_token()[0]

    settings = {
        "bootstrap_servers": address_of(broker, "CLIENTS"),
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=files["ca.pem"], certfile=files["certificate"], keyfile=files["key"]),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    else:
        settings |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    assert by_aiokafka(settings, topic, VALUES) == VALUES


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kcat_writes_and_reads(broker: InProcessBroker, files: dict[str, str], topic: str, tmp_path: Path, mechanism: str) -> None:
    assert by_kcat(librdkafka(broker, files, mechanism), topic, "one\ntwo\n", tmp_path) == "one\ntwo\n"


def test_kcat_writes_and_reads_by_the_tokens_that_it_makes(
    broker: InProcessBroker, files: dict[str, str], topic: str, tmp_path: Path
) -> None:
    settings = {
        "bootstrap.servers": address_of(broker, "UNSECURED"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": files["ca.pem"],
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=alice",
    }
    assert by_kcat(settings, topic, "one\ntwo\n", tmp_path) == "one\ntwo\n"


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_client_authenticates_again_over_tls_and_both_are_counted(broker: InProcessBroker, files: dict[str, str], topic: str) -> None:
    (acceptor,) = (each for each in broker.broker.socket_server.acceptors if each.endpoint.listener_name == "CLIENTS")
    counts = acceptor.authentications
    before = counts.successful_reauthentication_total
    producer = confluent.Producer(librdkafka(broker, files, "SCRAM-SHA-256"))
    producer.produce(topic, b"first")
    assert producer.flush(SECONDS) == 0
    assert counts.successful_authentication_total > 0
    assert eventually(lambda: counts.successful_reauthentication_total > before)
    producer.produce(topic, b"second")
    assert producer.flush(SECONDS) == 0
    assert counts.failed_reauthentication_total == 0
    suites = broker.run(
        lambda: {(each.protocol, each.suite) for each in broker.broker.socket_server.connections() if hasattr(each, "suite")}
    )
    assert suites == {("TLSv1.3", "TLS_AES_256_GCM_SHA384")}
