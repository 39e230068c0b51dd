"""Consumer groups of real clients: they share partitions, commit, and go on where they were, also after the broker has been away."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import confluent_kafka as confluent
import pytest
from confluent_kafka import admin as confluent_admin

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import Client, Clients, ConfluentClient, Record

GROUPS = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 4}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("groups"), **GROUPS) as running:
        yield running


def numbered(start: int, end: int) -> list[Record]:
    return [Record(b"%d" % number) for number in range(start, end)]


def a_member(broker: BrokerProcess, group: str, **config: object) -> confluent.Consumer:
    """A member that polls and commits only when told to."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return confluent.Consumer({**settings, "log_level": 0, **{key.replace("_", "."): value for key, value in config.items()}})


def assigned(members: list[confluent.Consumer]) -> list[list[int]]:
    """The partitions of each member, after giving each a chance to take part."""
    for member in members:
        member.poll(0.05)
    return [sorted(partition.partition for partition in member.assignment()) for member in members]


@pytest.mark.parametrize("client_name", Clients.all)
def test_a_group_goes_on_where_it_committed(broker: BrokerProcess, name: str, client_name: str) -> None:
    client: Client = Clients.all[client_name](broker.bootstrap)
    ConfluentClient(broker.bootstrap).create_topic(name)
    client.produce(name, numbered(0, 30))

    first = client.consume_in_group(name, f"group-{name}", 10)
    second = client.consume_in_group(name, f"group-{name}", 20)
    of_another = client.consume_in_group(name, f"another-{name}", 30)

    assert [record.offset for record in first + second] == list(range(30))
    assert [record.offset for record in of_another] == list(range(30))


def test_what_one_client_committed_another_goes_on_from(broker: BrokerProcess, name: str) -> None:
    ConfluentClient(broker.bootstrap).create_topic(name)
    ConfluentClient(broker.bootstrap).produce(name, numbered(0, 40))

    found = [Clients.all[client](broker.bootstrap).consume_in_group(name, name, 10) for client in Clients.all]

    assert [record.offset for records in found for record in records] == list(range(40))


def test_members_share_the_partitions_and_give_them_back(broker: BrokerProcess, name: str) -> None:
    ConfluentClient(broker.bootstrap).create_topic(name, 6)
    members = [a_member(broker, name) for _ in range(3)]
    members[0].subscribe([name])
    eventually(lambda: assigned(members[:1]) == [[0, 1, 2, 3, 4, 5]], 30, "all partitions for one")

    for member in members[1:]:
        member.subscribe([name])
    eventually(lambda: sorted(map(len, assigned(members))) == [2, 2, 2], 30, "two for each")
    assert sorted(partition for found in assigned(members) for partition in found) == [0, 1, 2, 3, 4, 5]

    members[0].close()
    eventually(lambda: sorted(map(len, assigned(members[1:]))) == [3, 3], 30, "three for each")
    for member in members[1:]:
        member.close()


def test_a_member_that_falls_silent_loses_its_partitions(broker: BrokerProcess, name: str) -> None:
    ConfluentClient(broker.bootstrap).create_topic(name, 2)
    silent = a_member(broker, name, session_timeout_ms=6000, max_poll_interval_ms=6000)
    silent.subscribe([name])
    eventually(lambda: assigned([silent]) == [[0, 1]], 30, "all partitions for one")

    other = a_member(broker, name)
    other.subscribe([name])

    eventually(lambda: assigned([other]) == [[0, 1]], 40, "all partitions for the other")
    # librdkafka (2.16) may wait for itself for ever when it is closed before it has said that the partitions are lost.
    eventually(lambda: assigned([silent]) == [[]], 30, "the silent one learns of it")
    other.close()
    silent.close()


def was_sought(member: confluent.Consumer, topic: str, partition: int) -> bool:
    """Seeks to the first offset; librdkafka refuses that until it fetches the partition."""
    try:
        member.seek(confluent.TopicPartition(topic, partition, 0))
    except confluent.KafkaException as error:
        if error.args[0].code() == confluent.KafkaError._STATE:
            return False
        raise
    return True


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_every_strategy_reads_each_record_once(broker: BrokerProcess, name: str, strategy: str) -> None:
    ConfluentClient(broker.bootstrap).create_topic(name, 4)
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(400):
        producer.produce(name, b"%d" % number, partition=number % 4)
    assert producer.flush(15) == 0
    members = [a_member(broker, name, partition_assignment_strategy=strategy) for _ in range(2)]
    for member in members:
        member.subscribe([name])
    eventually(lambda: sorted(map(len, assigned(members))) == [2, 2], 30, "two for each")
    for member in members:
        for partition in member.assignment():
            eventually(partial(was_sought, member, name, partition.partition), 30, "a seek")

    found: list[int] = []
    while len(found) < 400:
        for member in members:
            found += [int(message.value()) for message in member.consume(100, 0.1)]

    assert sorted(found) == list(range(400))
    for member in members:
        member.close()


def test_groups_are_listed_described_reset_and_deleted(broker: BrokerProcess, name: str) -> None:
    client = ConfluentClient(broker.bootstrap)
    client.create_topic(name)
    client.produce(name, numbered(0, 10))
    client.consume_in_group(name, name, 5)
    admin = confluent_admin.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    partition = confluent.TopicPartition(name, 0)

    assert name in {group.group_id for group in admin.list_consumer_groups().result(15).valid}
    assert admin.describe_consumer_groups([name])[name].result(15).state == confluent.ConsumerGroupState.EMPTY
    asked = [confluent.ConsumerGroupTopicPartitions(name, [partition])]
    assert [p.offset for p in admin.list_consumer_group_offsets(asked)[name].result(15).topic_partitions] == [5]

    moved = [confluent.ConsumerGroupTopicPartitions(name, [confluent.TopicPartition(name, 0, 8)])]
    admin.alter_consumer_group_offsets(moved)[name].result(15)
    assert [record.offset for record in client.consume_in_group(name, name, 2)] == [8, 9]

    admin.delete_consumer_groups([name])[name].result(15)
    assert name not in {group.group_id for group in admin.list_consumer_groups().result(15).valid}
    assert [record.offset for record in client.consume_in_group(name, name, 1)] == [0]


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("client_name", Clients.all)
def test_committed_offsets_outlive_the_broker(tmp_path: Path, client_name: str, end: str) -> None:
    with a_broker(tmp_path, **GROUPS) as broker:
        ConfluentClient(broker.bootstrap).create_topic("t")
        client: Client = Clients.all[client_name](broker.bootstrap)
        client.produce("t", numbered(0, 20))
        client.consume_in_group("t", "group", 7)

        getattr(broker, end)()
        broker.start()

        assert [record.offset for record in client.consume_in_group("t", "group", 13)] == list(range(7, 20))


def test_a_running_member_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    with a_broker(tmp_path, **GROUPS) as broker:
        client = ConfluentClient(broker.bootstrap)
        client.create_topic("t")
        client.produce("t", numbered(0, 10))
        member = a_member(broker, "group")
        member.subscribe(["t"])
        found: list[int] = []

        def read_until(count: int) -> bool:
            found.extend(int(message.value()) for message in member.consume(100, 0.1) if message.error() is None)
            return len(found) >= count

        eventually(lambda: read_until(10), 30, "the first ten")
        member.commit(asynchronous=False)
        broker.kill()
        broker.start()
        writer = threading.Thread(target=client.produce, args=("t", numbered(10, 20)))
        writer.start()
        eventually(lambda: read_until(20), 30, "the next ten")
        writer.join()
        assert found == list(range(20))
        eventually(lambda: not commit_fails(member), 30, "a commit")
        member.close()

        assert [record.offset for record in numbered_after(client, 1)] == [20]


def commit_fails(member: confluent.Consumer) -> bool:
    try:
        member.commit(asynchronous=False)
    except confluent.KafkaException:
        return True
    return False


def numbered_after(client: Client, count: int) -> list[Record]:
    client.produce("t", numbered(20, 20 + count))
    return client.consume_in_group("t", "group", count)
