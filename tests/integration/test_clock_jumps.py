"""The time of day jumps an hour forward and back: durations go on, so sessions, transactions and quotas do not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from pytest_ottla import Broker
from tests.support.broker_process import eventually
from tests.support.limited_producer import check_delays, delays_over_jumps

HOUR = 3600
SESSION_MS = 6_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {
        "num_partitions": 1,
        "log_retention_check_interval_ms": 100,
        "log_initial_task_delay_ms": 0,
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": 100,
    }
    with Broker(tmp_path_factory.mktemp("clock"), **config) as started:
        yield started


@pytest.fixture(params=[HOUR, -HOUR], ids=["forward", "back"])
def jump(broker: Broker, request: pytest.FixtureRequest) -> Iterator[int]:
    """The seconds of a jump, which the test takes."""
    yield request.param
    broker.shift_clock(0)


def members(broker: Broker, group: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return [member.member_id for member in admin.describe_consumer_groups([group])[group].result().members]


@pytest.mark.slow
def test_members_of_a_group_keep_their_sessions(broker: Broker, jump: int) -> None:
    topic = f"sessions-{jump}"
    broker.produce(topic, [b"one"])
    options = {"auto.offset.reset": "earliest", "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, **options})
    with closing(consumer):
        consumer.subscribe([topic])
        assert consumer.poll(20) is not None
        before = members(broker, topic)
        broker.shift_clock(jump)
        until = time.monotonic() + 1.5 * SESSION_MS / 1000
        while time.monotonic() < until:
            consumer.poll(0.2)
        broker.shift_clock(0)
        consumer.poll(1)
        assert members(broker, topic) == before
        broker.produce(topic, [b"two"])
        eventually(lambda: (message := consumer.poll(0.2)) is not None and message.value() == b"two")


def test_a_transaction_commits_after_the_clock_went_back(broker: Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "back"})
    producer.init_transactions(20)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce("transactions", b"value")
        producer.flush(20)
        broker.shift_clock(-HOUR)
        producer.commit_transaction(20)
        broker.shift_clock(0)
    assert [record.value for record in broker.consume("transactions", 2)] == [b"value"] * 2


def test_a_transaction_is_as_old_as_the_clock_says(broker: Broker, jump: int) -> None:
    """As with Apache Kafka, whose coordinators keep the time of day at which a transaction began: a new coordinator has to know its age."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"old-{jump}", "transaction.timeout.ms": 60_000}
    producer = confluent_kafka.Producer(options)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(f"old-{jump}", b"value")
    producer.flush(20)
    broker.shift_clock(jump)
    time.sleep(0.5)  # several looks for old transactions
    if jump > 0:
        with pytest.raises(confluent_kafka.KafkaException):
            producer.commit_transaction(20)
    else:
        producer.commit_transaction(20)


def test_records_are_kept_for_their_time_and_found_by_their_timestamps(broker: Broker, jump: int) -> None:
    topic = f"retention-{jump}"
    broker.create_topic(topic, config={"retention.ms": str(3 * HOUR * 1000), "message.timestamp.type": "LogAppendTime"})
    broker.produce(topic, [b"before"])
    broker.roll(topic)
    broker.shift_clock(jump)
    broker.produce(topic, [b"during"])
    broker.roll(topic)
    time.sleep(0.5)  # several looks for old segments
    broker.shift_clock(0)
    broker.produce(topic, [b"after"])
    assert [record.value for record in broker.consume(topic, 3)] == [b"before", b"during", b"after"]


def test_a_quota_delays_a_client_as_long_as_without_a_jump(broker: Broker, jump: int) -> None:
    topic = f"quota-{jump}"
    broker.produce(topic, [b"value"])
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    check_delays(delays_over_jumps(port, topic, broker.shift_clock, [jump, 0, 0]))
