"""Foreign clients write and read over TLS, with a certificate of their own, while others use the plaintext listener of the same broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest
from aiokafka.helpers import create_ssl_context

from tests.support.certificates import Identity, java_key_store
from tests.support.foreign_clients import SECONDS, by_aiokafka, by_confluent, by_kafka_python, by_kcat
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

VALUES = [b"small", b"x" * 16_384, b"y" * 700_000, *(b"%d" % number * 50 for number in range(300))]


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module", params=["PEM", "PKCS12", "JKS"])
def broker(request: pytest.FixtureRequest, authority: Identity, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """A broker whose stores have the format of the parameter."""
    directory = tmp_path_factory.mktemp("tls")
    server = Identity("CN=localhost", authority)
    keys, trust = directory / "keys", directory / "trust"
    stores = {"ssl_keystore_password": "secret", "ssl_truststore_password": "secret"}
    if request.param == "PEM":
        keys.write_text(server.key_pem() + server.certificate_pem)
        trust.write_text(authority.certificate_pem)
        stores = {}
    elif request.param == "PKCS12":
        keys.write_bytes(server.pkcs12("secret"))
        trust.write_bytes(authority.pkcs12("secret"))
    else:
        keys.write_bytes(java_key_store("secret", server.jks_key("secret")))
        trust.write_bytes(java_key_store("secret", authority.jks_certificate()))
    with a_broker_in_process(
        directory / "data",
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        ssl_keystore_location=keys,
        ssl_keystore_type=request.param,
        ssl_truststore_location=trust,
        ssl_truststore_type=request.param,
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^CN=(.*?)$/$1/L,DEFAULT",
        **stores,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def alice(authority: Identity, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The paths of a client's files."""
    directory = tmp_path_factory.mktemp("client")
    certificate, key = Identity("CN=Alice", authority).files(directory, "alice")
    (directory / "ca.crt").write_text(authority.certificate_pem)
    return {"ca": str(directory / "ca.crt"), "certificate": str(certificate), "key": str(key)}


def secure_address(broker: InProcessBroker) -> str:
    return next(each for each in broker.broker.addresses if each.startswith("SSL:")).removeprefix("SSL://")


def principals(broker: InProcessBroker) -> set[str]:
    connections = broker.run(broker.broker.socket_server.connections)
    return {str(each.client.principal) for each in connections if each.client.listener_name == "SSL"}


def librdkafka(broker: InProcessBroker, alice: dict[str, str]) -> dict[str, str | int | float | bool | None]:
    return {
        "bootstrap.servers": secure_address(broker),
        "security.protocol": "ssl",
        "ssl.ca.location": alice["ca"],
        "ssl.certificate.location": alice["certificate"],
        "ssl.key.location": alice["key"],
    }


def speaks_as_alice(broker: InProcessBroker) -> Callable[[], None]:
    def check() -> None:
        assert principals(broker) == {"User:alice"}

    return check


def test_confluent_kafka_writes_and_reads_with_a_certificate(broker: InProcessBroker, alice: dict[str, str]) -> None:
    assert by_confluent(librdkafka(broker, alice), f"confluent-{uuid.uuid4()}", VALUES, speaks_as_alice(broker)) == VALUES


def test_kafka_python_writes_and_reads_with_a_certificate(broker: InProcessBroker, alice: dict[str, str]) -> None:
    settings = {
        "bootstrap_servers": secure_address(broker),
        "security_protocol": "SSL",
        "ssl_cafile": alice["ca"],
        "ssl_certfile": alice["certificate"],
        "ssl_keyfile": alice["key"],
    }
    assert by_kafka_python(settings, f"kafka-python-{uuid.uuid4()}", VALUES, speaks_as_alice(broker)) == VALUES


def test_aiokafka_writes_and_reads_with_a_certificate(broker: InProcessBroker, alice: dict[str, str]) -> None:
    context = create_ssl_context(cafile=alice["ca"], certfile=alice["certificate"], keyfile=alice["key"])
    settings = {"bootstrap_servers": secure_address(broker), "security_protocol": "SSL", "ssl_context": context}
    assert by_aiokafka(settings, f"aiokafka-{uuid.uuid4()}", VALUES, speaks_as_alice(broker)) == VALUES


def test_kcat_writes_and_reads_with_a_certificate(broker: InProcessBroker, alice: dict[str, str], tmp_path: Path) -> None:
    assert by_kcat(librdkafka(broker, alice), f"kcat-{uuid.uuid4()}", "one\ntwo\n", tmp_path) == "one\ntwo\n"


def test_a_client_without_a_certificate_gets_nothing_and_the_plaintext_listener_serves_on(
    broker: InProcessBroker, alice: dict[str, str]
) -> None:
    stranger = confluent.Producer({"bootstrap.servers": secure_address(broker), "security.protocol": "ssl", "ssl.ca.location": alice["ca"]})
    with pytest.raises(confluent.KafkaException):
        stranger.list_topics(timeout=2)
    plain = next(each for each in broker.broker.addresses if each.startswith("PLAINTEXT:")).removeprefix("PLAINTEXT://")
    assert confluent.Producer({"bootstrap.servers": plain}).list_topics(timeout=SECONDS).brokers
