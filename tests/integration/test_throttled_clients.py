"""Real clients that exceed a quota: they are throttled, and lose nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent

from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.command_line import CommandLine

VALUE = b"x" * 10_000
RECORDS = 230


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(
        tmp_path_factory.mktemp("throttled"), broker_id=0, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1
    ) as b:
        yield b


@pytest.fixture
def ottla(broker: BrokerProcess) -> CommandLine:
    return CommandLine(broker.bootstrap)


def test_a_producer_and_a_consumer_of_librdkafka_are_slowed_down_to_their_quotas(broker: BrokerProcess, ottla: CommandLine) -> None:
    ottla("topics", "create", "slow")
    ottla("quotas", "set", "producer_byte_rate=200000", "consumer_byte_rate=200000", "--client-id", "limited")
    throttled: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "limited", "throttle_cb": throttled.append}
    failed: list[object] = []
    producer = Producer(settings | {"batch.num.messages": 10, "linger.ms": 5})
    began = time.monotonic()
    for _ in range(RECORDS):
        producer.produce("slow", VALUE, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    # Two million bytes are allowed at once; the rest waits.
    assert time.monotonic() - began > 1
    assert failed == []
    assert throttled
    assert max(event.throttle_time for event in throttled) > 0

    throttled.clear()
    consumer = Consumer(settings | {"group.id": "slow", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["slow"])
    received = 0
    deadline = time.monotonic() + 90
    while received < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(1)
        received += message is not None and message.error() is None
    consumer.close()
    assert received == RECORDS
    assert throttled


def test_quotas_are_set_shown_and_removed_by_the_command_line(ottla: CommandLine) -> None:
    assert ottla("quotas", "set", "producer_byte_rate=1000", "request_percentage=12.5", "--user", "alice").out == "user alice: changed\n"
    both = ("--user", "alice", "--default-client-id")
    assert ottla("quotas", "set", "consumer_byte_rate=1e6", *both).out == "user alice, default client-id: changed\n"
    ottla("quotas", "set", "connection_creation_rate=7", "--ip", "127.0.0.1", "--validate-only")
    rows = [
        ["alice", "<default>", "-", "consumer_byte_rate", "1000000"],
        ["alice", "-", "-", "producer_byte_rate", "1000"],
        ["alice", "-", "-", "request_percentage", "12.5"],
    ]
    assert ottla("quotas", "list", "--user", "alice").rows == rows
    assert ottla("quotas", "list", "--user", "alice", "--strict").rows == rows[1:]
    assert ottla("quotas", "list", *both, "--json").json == [
        {"entity": {"user": "alice", "client-id": None}, "quotas": {"consumer_byte_rate": 1e6}}
    ]
    ottla("quotas", "remove", "producer_byte_rate", "request_percentage", "--user", "alice")
    ottla("quotas", "remove", "consumer_byte_rate", *both)
    nothing = ottla("quotas", "list", "--user", "alice")
    assert (nothing.rows, nothing.err) == ([], "no quotas\n")


def test_what_cannot_be_set_is_one_line(ottla: CommandLine) -> None:
    assert "Whose quotas?" in ottla("quotas", "set", "producer_byte_rate=1", status=2).err
    assert "'much' is not a number" in ottla("quotas", "set", "producer_byte_rate=much", "--user", "a", status=2).err
    assert "exclude each other" in ottla("quotas", "list", "--user", "a", "--default-user", status=2).err
    unknown = ottla("quotas", "set", "speed=1", "--user", "a", status=1).err
    assert unknown == "ottla: user a: Invalid configuration key speed (INVALID_REQUEST)\n"
