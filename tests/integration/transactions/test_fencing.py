"""A second instance of a transactional id fences the first, and a transaction that is abandoned ends at its timeout."""

import time
from itertools import takewhile

import pytest

from tests.integration.transactions.conftest import Topic, produce
from tests.support.broker_process import eventually
from tests.support.judged_broker import JudgedBroker, needs_its_broker
from tests.support.transactional import Client, Fenced, Refused, reads, values_of
from tests.support.transactional.kafka_python import KafkaPythonClient

pytestmark = needs_its_broker

TIMEOUT_MS = 2_000


def test_a_second_instance_aborts_the_transaction_of_the_first_and_fences_it(client: Client, topic: Topic, name: str) -> None:
    written = topic()
    first = client.producer(name)
    first.begin()
    first.send(written, 0, "of the first")
    first.flush()

    second = client.producer(name)
    assert client.read(written) == []
    second.begin()
    second.send(written, 0, "of the second")
    second.commit()
    with pytest.raises(Fenced):
        first.commit()

    reads(client, written, {0: ["of the second"]})
    assert values_of(client.read(written, committed=False)) == {0: ["of the first", "of the second"]}
    first.close()
    second.close()


def test_the_first_instance_cannot_write_while_the_second_has_a_transaction(client: Client, topic: Topic, name: str) -> None:
    if client.name == KafkaPythonClient.name:
        pytest.skip("kafka-python answers INVALID_PRODUCER_EPOCH with a new InitProducerId, which fences the second instance")
    written = topic()
    first = client.producer(name)
    first.begin()
    first.send(written, 0, "early")
    first.flush()
    second = client.producer(name)
    second.begin()
    second.send(written, 0, "right")
    second.flush()

    with pytest.raises(Refused):
        first.send(written, 0, "late")
        first.flush()
        first.commit()
    second.send(written, 0, "and on")
    second.commit()

    reads(client, written, {0: ["right", "and on"]})
    assert values_of(client.read(written, committed=False)) == {0: ["early", "right", "and on"]}
    first.close()
    second.close()


def test_a_successor_of_an_instance_that_died_goes_on(client: Client, topic: Topic, name: str) -> None:
    written = topic(partitions=2)
    kept = []
    for number in range(4):
        producer = client.producer(name)
        producer.begin()
        producer.send(written, number % 2, f"kept {number}")
        producer.commit()
        kept.append(f"kept {number}")
        producer.begin()
        producer.send(written, 0, "lost")
        producer.send(written, 1, "lost")
        producer.flush()
        producer.close()
    client.producer(name).close()
    reads(client, written, {0: kept[::2], 1: kept[1::2]}, 2)


def test_a_transaction_is_aborted_at_its_timeout_and_a_new_instance_goes_on(
    client: Client, topic: Topic, broker: JudgedBroker, name: str
) -> None:
    written = topic()
    first = client.producer(name, TIMEOUT_MS)
    first.begin()
    first.send(written, 0, "too late")
    first.flush()
    produce(broker, written, "behind")
    assert client.read(written) == []

    eventually(lambda: values_of(client.read(written)) == {0: ["behind"]}, what="the abandoned transaction is aborted")
    with pytest.raises(Refused):
        first.commit()
    second = client.producer(name, TIMEOUT_MS)
    second.begin()
    second.send(written, 0, "in time")
    second.commit()

    reads(client, written, {0: ["behind", "in time"]})
    assert values_of(client.read(written, committed=False)) == {0: ["too late", "behind", "in time"]}
    first.close()
    second.close()


def test_a_transaction_may_take_longer_than_others_that_begin_after_it(client: Client, topic: Topic, name: str) -> None:
    slow, quick = topic(".slow"), topic(".quick")
    patient = client.producer(f"{name}.patient")
    patient.begin()
    patient.send(slow, 0, "slow")
    patient.flush()
    hasty = client.producer(f"{name}.hasty", TIMEOUT_MS)
    began = time.monotonic()
    numbers = takewhile(lambda _: time.monotonic() < began + 1.5 * TIMEOUT_MS / 1000, range(100_000))
    sent = []
    for number in numbers:
        hasty.begin()
        hasty.send(quick, 0, str(number))
        hasty.commit()
        sent.append(str(number))
    patient.commit()
    reads(client, slow, {0: ["slow"]})
    reads(client, quick, {0: sent})
    patient.close()
    hasty.close()
