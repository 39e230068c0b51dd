"""Real clients authenticate at a SASL_PLAINTEXT listener, produce and consume."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

MODULE = "org.apache.kafka.common.security"
SECONDS = 60
TOPIC = "secured"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    lines = {
        "plain": f'{MODULE}.plain.PlainLoginModule required user_alice="alice-secret";',
        "scram-sha-256": f"{MODULE}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{MODULE}.scram.ScramLoginModule required;",
        "oauthbearer": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    with a_broker_in_process(
        tmp_path_factory.mktemp("sasl") / "log",
        listeners="PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "connections.max.reauth.ms": 2500,
        },
        **{f"listener.name.sasl.{name}.sasl.jaas.config": line for name, line in lines.items()},
    ) as running:
        admin = AdminClient({"bootstrap.servers": address_of(running, "PLAINTEXT")})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS)
        upsertions = [
            UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"alice-secret")
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for upsertion in upsertions:
            admin.alter_user_scram_credentials([upsertion])["alice"].result(SECONDS)
        yield running


def address_of(broker: InProcessBroker, listener: str) -> str:
    (address,) = (each for each in broker.broker.addresses if each.startswith(f"{listener}://"))
    return address.partition("://")[2]


def login(broker: InProcessBroker, mechanism: str, password: str = "alice-secret") -> dict[str, Any]:
    return {
        "bootstrap.servers": address_of(broker, "SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def unsecured(broker: InProcessBroker) -> dict[str, Any]:
    def token(_: str) -> tuple[str, float]:
        expires = time.time() + 3600
        parts = ({"alg": "none"}, {"sub": "alice", "exp": expires})
        return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".", expires

    settings = login(broker, "OAUTHBEARER")
    del settings["sasl.username"], settings["sasl.password"]
    return {**settings, "oauth_cb": token}


def write(settings: dict[str, Any], *values: bytes) -> None:
    delivered: list[Any] = []
    producer = confluent_kafka.Producer(settings)
    for value in values:
        producer.produce(TOPIC, value, on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(SECONDS) == 0
    assert delivered == [None] * len(values)


def read_until(settings: dict[str, Any], group: str, last: bytes) -> None:
    consumer = confluent_kafka.Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None
                if message.value() == last:
                    return
    finally:
        consumer.close()
    raise AssertionError(f"{last!r} was not read")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_librdkafka_writes_and_reads(broker: InProcessBroker, mechanism: str) -> None:
    settings = unsecured(broker) if mechanism == "OAUTHBEARER" else login(broker, mechanism)
    write(settings, mechanism.encode())
    read_until(settings, f"group-{mechanism}", mechanism.encode())


def test_librdkafka_authenticates_again_without_losing_a_record(broker: InProcessBroker) -> None:
    producer = confluent_kafka.Producer(login(broker, "SCRAM-SHA-256"))
    delivered: list[Any] = []
    began = time.monotonic()
    sent = 0
    while time.monotonic() - began < 6:  # more than two sessions
        producer.produce(TOPIC, b"again-%d" % sent, on_delivery=lambda error, _: delivered.append(error))
        sent += 1
        producer.poll(0.05)
    assert producer.flush(SECONDS) == 0
    assert delivered == [None] * sent


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_hears_of_a_wrong_password(broker: InProcessBroker, mechanism: str) -> None:
    errors: list[Any] = []
    client = AdminClient({**login(broker, mechanism, "wrong"), "error_cb": errors.append})
    deadline = time.monotonic() + SECONDS
    while not errors and time.monotonic() < deadline:
        client.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert mechanism in errors[0].str() or "Invalid username or password" in errors[0].str()


def test_kafka_python_writes_by_scram(broker: InProcessBroker) -> None:
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(
        bootstrap_servers=address_of(broker, "SASL"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password="alice-secret",
    )
    try:
        assert producer.send(TOPIC, b"by kafka-python").get(SECONDS).topic == TOPIC
    finally:
        producer.close()
