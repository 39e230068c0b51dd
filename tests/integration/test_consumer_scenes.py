"""Consumers of librdkafka in both protocols: topics that are deleted and created again, pauses, exactly-once copies, two assignors.

Apache Kafka 4.4 lets each of these consumers do the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess, a_broker

pytestmark = pytest.mark.slow

SECONDS = 90.0
PROTOCOLS = ("consumer", "classic")
ASSIGNORS = ("range", "uniform")
CONFIG: dict[str, Any] = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_heartbeat_interval_ms": 300,
    "group_consumer_min_heartbeat_interval_ms": 100,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as running:
        yield running


class Topics:
    """Creates, deletes and fills topics."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int = 2) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(SECONDS)

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(SECONDS)

    def fill(self, name: str, values: range, partitions: int = 2) -> None:
        for value in values:
            self._producer.produce(name, str(value), partition=value % partitions)
        assert self._producer.flush(SECONDS) == 0


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap)


class Reader:
    """A consumer, and the values that it has read."""

    def __init__(self, broker: BrokerProcess, group: str, *topics: str, **properties: Any) -> None:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        if given.get("group.protocol") != "consumer":
            given = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 200, **given}
        self.values: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 300,
                **given,
            }
        )
        self.consumer.subscribe(list(topics))

    def poll(self) -> list[Message]:
        """The records of one call, which may be none. A topic that was deleted is an error that passes."""
        messages = [each for each in self.consumer.consume(10, 0.05) if each.error() is None]
        self.values += [int(each.value() or b"") for each in messages]
        return messages

    def partitions(self) -> list[tuple[str, int]]:
        return sorted((each.topic, each.partition) for each in self.consumer.assignment())


def poll_until(condition: Callable[[], bool], *readers: Reader) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, [(reader.partitions(), reader.values) for reader in readers]
        for reader in readers:
            reader.poll()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_expression_finds_a_topic_that_is_created_later_deleted_and_created_again(
    broker: BrokerProcess, topics: Topics, protocol: str
) -> None:
    if protocol == "consumer" and find_spec("re2") is None:
        pytest.skip("the package google-re2 is not installed")
    name = f"found-{protocol}"
    reader = Reader(broker, f"expression-{protocol}", f"^{name}$", group_protocol=protocol)
    reader.poll()
    topics.create(name)
    topics.fill(name, range(10))
    poll_until(lambda: set(reader.values) == set(range(10)), reader)
    topics.delete(name)
    poll_until(lambda: reader.partitions() == [], reader)
    topics.create(name)
    topics.fill(name, range(10, 20))
    poll_until(lambda: set(reader.values) == set(range(20)), reader)
    reader.consumer.close()


def test_a_member_of_the_new_protocol_reads_a_topic_that_replaces_another_of_its_name(broker: BrokerProcess, topics: Topics) -> None:
    topics.create("replaced")
    topics.fill("replaced", range(10))
    reader = Reader(broker, "replacing", "replaced", group_protocol="consumer")
    poll_until(lambda: len(reader.values) == 10, reader)
    reader.consumer.commit(asynchronous=False)
    topics.delete("replaced")
    topics.create("replaced")
    topics.fill("replaced", range(10, 20))
    poll_until(lambda: set(reader.values) == set(range(20)), reader)
    assert [each.offset < 0 for each in reader.consumer.committed([TopicPartition("replaced", index) for index in range(2)], SECONDS)] == [
        True,
        True,
    ]
    reader.consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_stay_paused_over_a_rebalance_and_what_is_given_back_is_not(
    broker: BrokerProcess, topics: Topics, protocol: str
) -> None:
    name = f"paused-{protocol}"
    topics.create(name, 4)
    first = Reader(broker, name, name, group_protocol=protocol)
    poll_until(lambda: len(first.partitions()) == 4, first)
    first.consumer.pause(first.consumer.assignment())
    second = Reader(broker, name, name, group_protocol=protocol)
    poll_until(lambda: len(first.partitions()) == len(second.partitions()) == 2, first, second)
    topics.fill(name, range(40), 4)
    poll_until(lambda: len(second.values) == 20, first, second)
    assert first.values == []
    second.consumer.close()
    poll_until(lambda: len(first.partitions()) == 4, first)
    first.consumer.resume(first.consumer.assignment())
    poll_until(lambda: set(first.values) | set(second.values) == set(range(40)), first)
    first.consumer.close()


class Copier:
    """Copies records from topic to topic in transactions, with the metadata of its group."""

    def __init__(self, broker: BrokerProcess, group: str, source: str, target: str, number: int, protocol: str) -> None:
        self._reader = Reader(broker, group, source, group_protocol=protocol)
        self._target = target
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{group}-{number}"})
        self._producer.init_transactions(SECONDS)

    def copy(self) -> None:
        """One transaction; after an error of one that a rebalance has overtaken the records are read again."""
        messages = self._reader.poll()
        if not messages:
            return
        consumer = self._reader.consumer
        self._producer.begin_transaction()
        for each in messages:
            self._producer.produce(self._target, each.value(), partition=each.partition())
        try:
            self._producer.send_offsets_to_transaction(_after(messages), consumer.consumer_group_metadata(), SECONDS)
            self._producer.commit_transaction(SECONDS)
        except KafkaException:
            self._producer.abort_transaction(SECONDS)
            for first in _first(messages):
                if first in consumer.assignment():
                    consumer.seek(first)

    def close(self) -> None:
        self._reader.consumer.close()


def _after(messages: Sequence[Message]) -> list[TopicPartition]:
    ends = {(each.topic() or "", each.partition() or 0): (each.offset() or 0) + 1 for each in messages}
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]


def _first(messages: Sequence[Message]) -> list[TopicPartition]:
    starts = {(each.topic() or "", each.partition() or 0): each.offset() or 0 for each in reversed(messages)}
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in starts.items()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_copiers_that_come_and_go_copy_every_record_once(broker: BrokerProcess, topics: Topics, protocol: str) -> None:
    source, target = f"source-{protocol}", f"target-{protocol}"
    topics.create(source)
    topics.create(target)
    topics.fill(source, range(200))
    judge = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "judge", "isolation.level": "read_committed"})
    judge.assign([TopicPartition(target, index, 0) for index in range(2)])
    copiers = [Copier(broker, f"copiers-{protocol}", source, target, 0, protocol)]
    copied: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(copied) < 200:
        assert time.monotonic() < deadline, copied
        if copied and len(copiers) == 1 and len(copied) < 100:
            copiers.append(Copier(broker, f"copiers-{protocol}", source, target, 1, protocol))
        elif len(copied) >= 100 and len(copiers) == 2:
            copiers.pop(0).close()
        for each in copiers:
            each.copy()
        copied += [int(each.value() or b"") for each in judge.consume(100, 0.05) if each.error() is None]
    assert sorted(copied) == list(range(200))
    for each in copiers:
        each.close()
    judge.close()


def test_members_that_ask_for_different_assignors_share_the_partitions(broker: BrokerProcess, topics: Topics) -> None:
    topics.create("assigned", 4)
    readers = [Reader(broker, "assigned", "assigned", group_protocol="consumer", group_remote_assignor=name) for name in ASSIGNORS]
    poll_until(lambda: [len(each.partitions()) for each in readers] == [2, 2], *readers)
    readers[0].consumer.close()
    poll_until(lambda: len(readers[1].partitions()) == 4, readers[1])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.describe_consumer_groups(["assigned"])["assigned"].result(SECONDS).partition_assignor == "uniform"
    readers[1].consumer.close()
