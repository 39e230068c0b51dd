"""Holds tests that would wait for minutes or hours without time at will; `benchmarks.comparisons.user_times waits` measures them.

Each is one of four kinds: a session that times out, records that outlive their retention, a transaction that is left open, a log that is
compacted.
"""

import os
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from pytest_ottla import Broker, Kafka

TESTS = int(os.environ.get("SUITE_TESTS", "50"))
SECONDS = 30.0


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("waits"), num_partitions=1) as started:
        yield started


def until(broker: Broker, topic: str, offsets: tuple[int, int]) -> None:
    """Wait until the topic has this first and this end offset."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "looks"})
    deadline = time.monotonic() + SECONDS
    while (found := consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=SECONDS)) != offsets:
        assert time.monotonic() < deadline, found
    consumer.close()


def members(broker: Broker, group: str) -> set[str]:
    """The ids of the members of a group."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return {member.member_id for member in admin.describe_consumer_groups([group])[group].result().members}


def outlive_retention(broker: Broker, kafka: Kafka) -> None:
    """Records are gone after an hour."""
    topic = kafka.topic(config={"retention.ms": "3600000"})
    broker.produce(topic, [b"one", b"two"])
    broker.advance(hours=2)  # and not days: clients keep their time, and the records of other tests would be old at once
    until(broker, topic, (2, 2))


def lose_a_session(broker: Broker, kafka: Kafka) -> None:
    """A member that is not heard of for two minutes is no member any more."""
    topic, group = kafka.topic(), kafka.group()
    broker.produce(topic, [b"one"])
    settings = {"group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 45_000}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    consumer.subscribe([topic])
    assert (message := consumer.poll(SECONDS)) is not None
    assert message.value() == b"one"
    before = members(broker, group)
    broker.advance(minutes=2)
    deadline = time.monotonic() + SECONDS
    while before & members(broker, group):
        assert time.monotonic() < deadline
    consumer.close()


def leave_a_transaction(broker: Broker, kafka: Kafka) -> None:
    """A transaction that is left open is aborted at its timeout."""
    topic = kafka.topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"half")
    assert producer.flush(SECONDS) == 0
    broker.advance(minutes=20)
    until(broker, topic, (0, 2))  # the record, and the marker of its abort


def compact(broker: Broker, kafka: Kafka) -> None:
    """A compacted topic has the last value of each key."""
    topic = kafka.topic(config={"cleanup.policy": "compact"})
    broker.produce(topic, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    broker.compact(topic)
    assert [each.value for each in broker.consume(topic, 2)] == [b"1", b"2"]


KINDS = (outlive_retention, lose_a_session, leave_a_transaction, compact)


@pytest.mark.parametrize("kind", tuple(islice(cycle(KINDS), TESTS)))
def test_it_ends_at_once(kind: Callable[[Broker, Kafka], None], broker: Broker) -> None:
    kafka = Kafka(broker, f"{kind.__name__}-{time.monotonic_ns()}-")
    kind(broker, kafka)
    kafka.remove()
