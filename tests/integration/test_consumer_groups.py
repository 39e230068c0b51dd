"""Groups of the new protocol with librdkafka's consumer: they share partitions, survive, and mix with the classic protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from ottla.protocol import features
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.command_line import CommandLine
from tests.support.in_process_broker import a_broker_in_process
from tests.support.wire_client import a_wire_client

needs_re2 = pytest.mark.skipif(find_spec("re2") is None, reason="the package google-re2 is not installed")
SECONDS = 90.0
PARTITIONS = 4
PROTOCOLS = ("consumer", "classic")
CONFIG: dict[str, Any] = {
    "num_partitions": PARTITIONS,
    "offsets_topic_num_partitions": 3,
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_heartbeat_interval_ms": 300,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_session_timeout_ms": 3_000,
    "group_consumer_min_session_timeout_ms": 1_000,
    "group_min_session_timeout_ms": 1_000,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as running:
        yield running


class Reader:
    """A consumer that commits what it has read."""

    def __init__(self, broker: BrokerProcess, group: str, *topics: str, protocol: str = "consumer", **properties: Any) -> None:
        config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 200}
        self.errors: list[confluent_kafka.KafkaError] = []
        self.read: list[int] = []
        self.consumer = confluent_kafka.Consumer({**config, "error_cb": self.errors.append})
        self.consumer.subscribe(list(topics))

    def poll(self) -> None:
        messages = self.consumer.consume(100, 0.05)
        for message in messages:
            error = message.error()
            if error is not None:
                self.errors.append(error)
            else:
                self.read.append(int(message.value() or b""))
        if messages and not self.errors:
            try:
                self.consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException:
                return  # the group is rebalancing; the records are read again

    def partitions(self) -> list[int]:
        return sorted(each.partition for each in self.consumer.assignment())

    def close(self) -> None:
        self.consumer.close()


def create_topic(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    CommandLine(broker.bootstrap)("topics", "create", topic, "-p", str(partitions))


def fill(broker: BrokerProcess, topic: str, count: int, first: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def poll_until(readers: list[Reader], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, [(reader.partitions(), len(reader.read), reader.errors) for reader in readers]
        for reader in readers:
            reader.poll()


def are_shared(readers: list[Reader]) -> bool:
    """Whether every partition has one reader, and every reader some."""
    assigned = [reader.partitions() for reader in readers]
    return all(assigned) and sorted(each for part in assigned for each in part) == list(range(PARTITIONS))


def test_members_share_the_partitions_and_the_last_gets_them_all(broker: BrokerProcess) -> None:
    fill(broker, "shared", 100)
    first = Reader(broker, "shared", "shared")
    poll_until([first], lambda: sorted(first.read) == list(range(100)))
    second = Reader(broker, "shared", "shared")
    poll_until([first, second], lambda: are_shared([first, second]))
    fill(broker, "shared", 100, 100)
    poll_until([first, second], lambda: {*first.read, *second.read} == set(range(200)))
    second.close()
    poll_until([first], lambda: first.partitions() == list(range(PARTITIONS)))
    first.close()


@needs_re2
def test_a_regular_expression_gets_the_topics_that_match_also_new_ones(broker: BrokerProcess) -> None:
    fill(broker, "matched-1", 4)
    reader = Reader(broker, "regex", "^matched-.*")
    poll_until([reader], lambda: len(reader.read) == 4)
    assert not reader.errors
    reader.close()


def test_a_static_member_comes_back_to_its_partitions(broker: BrokerProcess) -> None:
    create_topic(broker, "static", partitions=PARTITIONS)
    first, second = (Reader(broker, "static", "static", group_instance_id=f"i{number}") for number in (0, 1))
    poll_until([first, second], lambda: are_shared([first, second]))
    had = first.partitions()
    first.close()
    first = Reader(broker, "static", "static", group_instance_id="i0")
    poll_until([first, second], lambda: are_shared([first, second]))
    assert first.partitions() == had
    first.close()
    second.close()


def test_a_group_grows_with_its_topic(broker: BrokerProcess) -> None:
    create_topic(broker, "grows", partitions=1)
    reader = Reader(broker, "grows", "grows")
    poll_until([reader], lambda: reader.partitions() == [0])
    CommandLine(broker.bootstrap)("topics", "alter", "grows", "--partitions", "3")
    poll_until([reader], lambda: reader.partitions() == [0, 1, 2])
    reader.close()


def test_a_group_moves_to_the_new_protocol_and_back_and_loses_nothing(broker: BrokerProcess) -> None:
    fill(broker, "moves", 100)
    old = [Reader(broker, "moves", "moves", protocol="classic") for _ in range(2)]
    poll_until(old, lambda: are_shared(old))
    new = [Reader(broker, "moves", "moves") for _ in range(2)]
    poll_until(old + new, lambda: are_shared(old + new))
    fill(broker, "moves", 100, 100)
    for reader in old:
        reader.close()
    poll_until(new, lambda: are_shared(new))
    fill(broker, "moves", 100, 200)
    back = Reader(broker, "moves", "moves", protocol="classic")
    poll_until([*new, back], lambda: are_shared([*new, back]))
    for reader in new:
        reader.close()
    poll_until([back], lambda: back.partitions() == list(range(PARTITIONS)))
    everyone = [*old, *new, back]
    poll_until([back], lambda: {number for reader in everyone for number in reader.read} == set(range(300)))
    back.close()
    assert not [reader.errors for reader in everyone if reader.errors]


def test_a_group_survives_the_broker(tmp_path: Path) -> None:
    with a_broker(tmp_path, **CONFIG) as broker:
        fill(broker, "kept", 100)
        readers = [Reader(broker, "kept", "kept") for _ in range(2)]
        poll_until(readers, lambda: are_shared(readers) and sum(len(reader.read) for reader in readers) >= 100)
        broker.kill()
        broker.start()
        fill(broker, "kept", 100, 100)
        poll_until(readers, lambda: {number for reader in readers for number in reader.read} == set(range(200)) and are_shared(readers))
        for reader in readers:
            reader.close()


def test_the_command_line_shows_the_group(broker: BrokerProcess) -> None:
    create_topic(broker, "listed", partitions=2)
    reader = Reader(broker, "listed", "listed")
    poll_until([reader], lambda: reader.partitions() == [0, 1])
    ottla = CommandLine(broker.bootstrap)
    assert [row for row in ottla("groups", "list").rows if row[0] == "listed" and "Consumer" in row]
    assert "Stable" in ottla("groups", "describe", "listed").out
    reader.close()


def test_bad_heartbeats_are_refused_and_keep_nothing(broker: BrokerProcess) -> None:
    with a_wire_client(broker.port) as client:

        def ask(**fields: Any) -> tuple[int, int]:
            given = {
                "group_id": "bad",
                "member_id": "m",
                "rebalance_timeout_ms": 1_000,
                "subscribed_topic_names": [],
                "topic_partitions": [],
            }
            answer = client.ask(ConsumerGroupHeartbeatRequest(**{**given, **fields}), 1)
            return answer.error_code, answer.member_epoch

        client.ask(FindCoordinatorRequest(coordinator_keys=["bad"]), 4)
        eventually(lambda: ask(member_id="first")[0] == ErrorCode.NONE, SECONDS)
        invalid = ErrorCode.INVALID_REQUEST
        # Bytes that are no UTF-8 become three times as many.
        assert ask(member_id="m" * 32_767)[0] == ErrorCode.NONE
        assert ask(subscribed_topic_names=[f"t{number}" for number in range(20_001)])[0] == invalid
        assert ask(subscribed_topic_regex="(" * 30_000)[0] == ErrorCode.INVALID_REGULAR_EXPRESSION
        if find_spec("re2") is not None:
            assert ask(subscribed_topic_regex="|".join(f"t{number}" for number in range(4_000)))[0] == ErrorCode.NONE
        error, epoch = ask()
        assert error == ErrorCode.NONE
        huge = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=bytes(16), partitions=list(range(400_000)))]
        error, epoch = ask(member_epoch=epoch, topic_partitions=huge, rebalance_timeout_ms=-1)
        assert error == ErrorCode.NONE
        twice = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=bytes(16), partitions=[0, 0])] * 2
        assert ask(member_epoch=epoch, topic_partitions=twice, rebalance_timeout_ms=-1)[0] == ErrorCode.NONE
        assert ask(member_epoch=2**31 - 1)[0] == ErrorCode.FENCED_MEMBER_EPOCH
        assert ask(member_epoch=-(2**31))[0] == invalid
        assert ask(member_epoch=-1)[0] == ErrorCode.NONE


def test_without_the_feature_clients_get_an_error_instead_of_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "IMPLEMENTED", {})
    with a_broker_in_process(tmp_path) as broker:
        with a_wire_client(broker.port) as client:
            for version in (0, 1):
                request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
                assert client.ask(request, version).error_code == ErrorCode.UNSUPPORTED_VERSION
            (described,) = client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 0).groups
            assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "group.protocol": "consumer"})
        consumer.subscribe(["t"])
        message = consumer.poll(SECONDS)
        assert message is not None
        assert "API version not supported" in str(message.error())
        consumer.close()


def test_operations_on_a_group_include_those_on_its_configuration(broker: BrokerProcess) -> None:
    create_topic(broker, "operations", PARTITIONS)
    readers = {
        f"operations-{protocol}": Reader(broker, f"operations-{protocol}", "operations", protocol=protocol) for protocol in PROTOCOLS
    }
    poll_until(list(readers.values()), lambda: all(reader.partitions() for reader in readers.values()))
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    for described in admin.describe_consumer_groups(list(readers), include_authorized_operations=True).values():
        operations = {each.name for each in described.result(SECONDS).authorized_operations}
        assert operations == {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
    for reader in readers.values():
        reader.close()
