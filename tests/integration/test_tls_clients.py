"""Foreign clients write and read over TLS, with a certificate of their own, while others use the plaintext listener of the same broker."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest

from tests.support.certificates import Identity, java_key_store
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

with warnings.catch_warnings():  # kafka-python reads its schemas through a function that Python 3.11 wants replaced
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

SECONDS = 60
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


def test_confluent_kafka_writes_and_reads_with_a_certificate(broker: InProcessBroker, alice: dict[str, str]) -> None:
    settings = librdkafka(broker, alice)
    topic = f"confluent-{uuid.uuid4()}"
    producer = confluent.Producer({**settings, "enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS) == 0
    assert principals(broker) == {"User:alice"}
    consumer = confluent.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < len(VALUES):
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    assert found == VALUES


def test_kafka_python_writes_and_reads_with_a_certificate(broker: InProcessBroker, alice: dict[str, str]) -> None:
    settings = {
        "bootstrap_servers": secure_address(broker),
        "security_protocol": "SSL",
        "ssl_cafile": alice["ca"],
        "ssl_certfile": alice["certificate"],
        "ssl_keyfile": alice["key"],
    }
    topic = f"kafka-python-{uuid.uuid4()}"
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush(SECONDS)
    assert principals(broker) == {"User:alice"}
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000)
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == len(VALUES):
            break
    consumer.close()
    assert found == VALUES


def test_aiokafka_writes_and_reads_with_a_certificate(broker: InProcessBroker, alice: dict[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.helpers import create_ssl_context

    context = create_ssl_context(cafile=alice["ca"], certfile=alice["certificate"], keyfile=alice["key"])
    settings = {"bootstrap_servers": secure_address(broker), "security_protocol": "SSL", "ssl_context": context}
    topic = f"aiokafka-{uuid.uuid4()}"

    async def write_and_read() -> list[bytes]:
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait(topic, value, partition=0)
        assert await asyncio.to_thread(principals, broker) == {"User:alice"}
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
        await consumer.start()
        found = [(await asyncio.wait_for(consumer.getone(), SECONDS)).value for _ in VALUES]
        await consumer.stop()
        return found

    assert asyncio.run(write_and_read()) == VALUES


def test_kcat_writes_and_reads_with_a_certificate(broker: InProcessBroker, alice: dict[str, str], tmp_path: Path) -> None:
    settings = tmp_path / "kcat.conf"
    settings.write_text("".join(f"{name}={text}\n" for name, text in librdkafka(broker, alice).items()))
    topic = f"kcat-{uuid.uuid4()}"

    def kcat(*arguments: str, text: str | None = None) -> str:
        command = ["kcat", "-F", str(settings), "-t", topic, *arguments]
        run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert run.returncode == 0, run.stderr
        return run.stdout

    kcat("-P", text="one\ntwo\n")
    assert kcat("-C", "-e") == "one\ntwo\n"


def test_a_client_without_a_certificate_gets_nothing_and_the_plaintext_listener_serves_on(
    broker: InProcessBroker, alice: dict[str, str]
) -> None:
    stranger = confluent.Producer({"bootstrap.servers": secure_address(broker), "security.protocol": "ssl", "ssl.ca.location": alice["ca"]})
    with pytest.raises(confluent.KafkaException):
        stranger.list_topics(timeout=2)
    plain = next(each for each in broker.broker.addresses if each.startswith("PLAINTEXT:")).removeprefix("PLAINTEXT://")
    assert confluent.Producer({"bootstrap.servers": plain}).list_topics(timeout=SECONDS).brokers
