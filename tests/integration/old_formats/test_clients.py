"""Clients that speak as in the years before 2017 produce and consume, beside clients of today."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka as confluent
import pytest

from tests.support.admin_requests import a_topic, create
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.wire_client import a_wire_client

COUNT = 50
CONFIG = {"transaction_state_log_replication_factor": 1, "transaction_state_log_min_isr": 1, "transaction_state_log_num_partitions": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("old-clients"), broker_id=0, **CONFIG) as started:
        yield started


def old(bootstrap: str, version: str, **more: object) -> dict[str, object]:
    """The configuration of a librdkafka that asks for no ApiVersions."""
    return {
        "bootstrap.servers": bootstrap,
        "api.version.request": False,
        "broker.version.fallback": version,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def produced(config: dict[str, object], topic: str) -> list[tuple[bytes, bytes]]:
    sent = [(b"key-%d" % number, b"value %d " % number * 5) for number in range(COUNT)]
    producer = confluent.Producer(config)
    failed = []
    for key, value in sent:
        producer.produce(topic, value, key, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(20) == 0
    assert not failed
    return sent


def consumed(config: dict[str, object], topic: str, offset: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    consumer = confluent.Consumer(config | {"group.id": "none", "enable.auto.commit": False})
    consumer.assign([confluent.TopicPartition(topic, 0, offset)])
    found: list[tuple[bytes | None, bytes | None]] = []
    deadline = time.monotonic() + 20
    while len(found) < COUNT and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.key(), message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.2"])
def test_librdkafka_of_any_age_reads_what_librdkafka_of_any_age_wrote(broker: BrokerProcess, version: str, codec: str, acks: int) -> None:
    topic = f"rd-{version}-{codec}-{acks}"
    with a_wire_client(broker.port) as client:
        create(client, a_topic(topic))
    config = old(broker.bootstrap, version)
    sent = produced(config | {"compression.codec": codec, "acks": acks, "linger.ms": 20}, topic)
    assert consumed({"bootstrap.servers": broker.bootstrap}, topic) == sent
    assert consumed(config, topic) == sent


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.2"])
def test_an_old_librdkafka_reads_what_one_of_today_wrote(broker: BrokerProcess, version: str) -> None:
    topic = f"new-{version}"
    with a_wire_client(broker.port) as client:
        create(client, a_topic(topic))
    sent = produced({"bootstrap.servers": broker.bootstrap, "compression.codec": "lz4", "enable.idempotence": True}, topic)
    assert consumed(old(broker.bootstrap, version), topic) == sent


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0"])  # told 0.10, it asks for the versions that there are, and knows transactions
def test_an_old_librdkafka_reads_the_records_of_transactions_and_not_their_markers(broker: BrokerProcess, version: str) -> None:
    topic = f"transactions-{version}"
    with a_wire_client(broker.port) as client:
        create(client, a_topic(topic))
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    sent = []
    for number in range(COUNT):
        if not number % 5:
            producer.begin_transaction()
        sent.append((b"key-%d" % number, b"value"))
        producer.produce(topic, sent[-1][1], sent[-1][0], partition=0)
        if number % 5 == 4:
            assert producer.flush(20) == 0
            if number % 2:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
    assert consumed(old(broker.bootstrap, version), topic) == sent


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of kafka-python's own
@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10, 2)])
def test_kafka_python_of_any_age_produces_and_consumes(broker: BrokerProcess, version: tuple[int, ...]) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = f"python-{'.'.join(map(str, version))}"
    with a_wire_client(broker.port) as client:
        create(client, a_topic(topic))
    codecs = [None, "gzip", "snappy", "lz4"] if version >= (0, 10) else [None, "gzip", "snappy"]  # it lacks a library for lz4 of format 0
    sent = []
    for codec in codecs:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, api_version=version, compression_type=codec, linger_ms=20, enable_idempotence=False
        )
        for number in range(COUNT):
            sent.append(b"%d" % number)
            producer.send(topic, sent[-1], key=b"k", partition=0)
        producer.flush(10)
        producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, api_version=version, group_id=None, consumer_timeout_ms=10_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [message.value for _, message in zip(sent, consumer, strict=False)]  # in this order it waits for no further message
    consumer.close()
    assert found == sent


def test_old_and_new_members_share_a_group(broker: BrokerProcess) -> None:
    topic = "shared"
    with a_wire_client(broker.port) as client:
        create(client, a_topic(topic, 2))
    settings = {"group.id": "both", "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
    members = [
        confluent.Consumer(old(broker.bootstrap, "0.9.0") | settings),
        confluent.Consumer({"bootstrap.servers": broker.bootstrap} | settings),
    ]
    for member in members:
        member.subscribe([topic])
    found: list[set[bytes]] = [set(), set()]
    deadline = time.monotonic() + 40
    producer = confluent.Producer(old(broker.bootstrap, "0.10.2"))
    number = 0
    while not all(found) and time.monotonic() < deadline:
        for partition in (0, 1):
            producer.produce(topic, b"%d" % number, partition=partition)
        number += 1
        producer.flush(5)
        for member, messages in zip(members, found, strict=True):
            message = member.poll(0.2)
            if message is not None and message.error() is None:
                messages.add(message.value() or b"")
    for member in members:
        member.close()
    assert all(found)
