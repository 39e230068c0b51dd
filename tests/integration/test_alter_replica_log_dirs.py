"""AlterReplicaLogDirs over the wire: replicas move between directories while they are written and read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as confluent
import pytest
from confluent_kafka import admin as confluent_admin

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.support.admin_requests import a_topic, create
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
RECORDS = 20_000
SEVERAL_FETCHES = 5_000
"""Records of a kilobyte: several times what a fetch takes before the throttle counts it."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, broker_id=0, log_dirs=f"{tmp_path}/a,{tmp_path}/b") as running:
        yield running


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


def alter(client: WireClient, path: Path | str, *partitions: tuple[str, int], version: int = 2) -> list[str]:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[index]) for name, index in partitions]
    response = client.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=topics)]), version)
    return [ErrorCode.of(partition.error_code).name for topic in response.results for partition in topic.partitions]


def replicas(client: WireClient, topic: str) -> list[tuple[str, int, bool, int]]:
    """(last part of the directory, partition, whether it is a future one, lag) of the topic's replicas."""
    response = client.ask(DescribeLogDirsRequest(topics=None), 4)
    found = [
        (result.log_dir.rpartition("/")[2], partition.partition_index, partition.is_future_key, partition.offset_lag)
        for result in response.results
        for described in result.topics
        if described.name == topic
        for partition in described.partitions
    ]
    return sorted(found)


def throttle(broker: InProcessBroker, bytes_per_second: int | None) -> None:
    values = {} if bytes_per_second is None else {THROTTLE: str(bytes_per_second)}
    broker.run(lambda: broker.config.update_dynamic(values, {}))


def produce(bootstrap: str, topic: str, count: int, value: Callable[[int], bytes] = lambda number: b"%d" % number) -> None:
    producer = confluent.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    failed: list[Any] = []
    for number in range(count):
        producer.produce(topic, value(number), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
        if number % 1000 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0
    assert failed == []


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent.Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), 30)
        assert messages, f"{len(values)} of {count} came"
        values += [message.value() for message in messages if message.error() is None]
    consumer.close()
    return values


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_replica_moves_to_the_directory_that_is_asked_for(
    broker: InProcessBroker, client: WireClient, tmp_path: Path, version: int
) -> None:
    create(client, a_topic("t"))
    produce(broker.bootstrap, "t", 100)
    ((here, *_),) = replicas(client, "t")
    there = "b" if here == "a" else "a"
    assert alter(client, tmp_path / there, ("t", 0), version=version) == ["NONE"]
    eventually(lambda: replicas(client, "t") == [(there, 0, False, 0)])
    assert consume(broker.bootstrap, "t", 100) == [b"%d" % number for number in range(100)]
    assert alter(client, tmp_path / there, ("t", 0), version=version) == ["NONE"]
    assert replicas(client, "t") == [(there, 0, False, 0)]


def test_nothing_is_lost_while_a_replica_moves_to_and_fro(broker: InProcessBroker, client: WireClient, tmp_path: Path) -> None:
    create(client, a_topic("t", configs={"segment.bytes": "100000"}))
    writing = threading.Thread(target=produce, args=(broker.bootstrap, "t", RECORDS))
    reading: list[list[bytes]] = []
    consuming = threading.Thread(target=lambda: reading.append(consume(broker.bootstrap, "t", RECORDS)))
    writing.start()
    consuming.start()
    moves = 0
    while writing.is_alive():
        there = "b" if replicas(client, "t")[0][0] == "a" else "a"
        assert alter(client, tmp_path / there, ("t", 0)) == ["NONE"]
        eventually(lambda there=there: replicas(client, "t") == [(there, 0, False, 0)])
        moves += 1
    writing.join()
    consuming.join()
    expected = [b"%d" % number for number in range(RECORDS)]
    assert reading == [expected]
    assert consume(broker.bootstrap, "t", RECORDS) == expected
    assert moves > 1


def test_the_replica_on_its_way_is_shown_with_its_lag_until_it_is_called_back(
    broker: InProcessBroker, client: WireClient, tmp_path: Path
) -> None:
    create(client, a_topic("t"))
    produce(broker.bootstrap, "t", 10, lambda number: b"x" * 1000)
    ((here, *_),) = replicas(client, "t")
    there = "b" if here == "a" else "a"
    throttle(broker, 0)
    assert alter(client, tmp_path / there, ("t", 0)) == ["NONE"]
    assert replicas(client, "t") == sorted([(here, 0, False, 0), (there, 0, True, 10)])
    assert alter(client, tmp_path / here, ("t", 0)) == ["NONE"]
    assert replicas(client, "t") == [(here, 0, False, 0)]
    assert alter(client, tmp_path / there, ("t", 0)) == ["NONE"]
    throttle(broker, None)
    eventually(lambda: replicas(client, "t") == [(there, 0, False, 0)])


def test_a_partition_is_created_where_it_was_asked_for(client: WireClient, tmp_path: Path) -> None:
    for topic in ("u", "v", "w"):
        assert alter(client, tmp_path / "b", (topic, 0)) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    create(client, a_topic("u"), a_topic("v"), a_topic("w"))
    assert [replicas(client, topic) for topic in ("u", "v", "w")] == [[("b", 0, False, 0)]] * 3


def test_what_cannot_be_moved_says_why(broker: InProcessBroker, client: WireClient, tmp_path: Path) -> None:
    long_name = "x" * 214
    create(client, a_topic("t"), a_topic(long_name))
    assert alter(client, "a", ("t", 0)) == ["LOG_DIR_NOT_FOUND"]
    assert alter(client, tmp_path, ("t", 0), ("t", 1)) == ["LOG_DIR_NOT_FOUND", "LOG_DIR_NOT_FOUND"]
    assert alter(client, tmp_path / "a", ("t", 1)) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert alter(client, tmp_path / "a", (long_name, 0)) == ["INVALID_TOPIC_EXCEPTION"]
    ((here, *_),) = replicas(client, "t")
    there = "b" if here == "a" else "a"
    broker.run(lambda: broker.services.data.replica_manager.on_log_dir_failure(str(tmp_path / there)))
    assert alter(client, tmp_path / there, ("t", 0)) == ["KAFKA_STORAGE_ERROR"]
    assert alter(client, tmp_path / here, ("t", 0)) == ["NONE"]


def test_a_restart_goes_on_with_a_move(tmp_path: Path) -> None:
    directories = f"{tmp_path}/a,{tmp_path}/b"
    with a_broker(tmp_path, log_dirs=directories, broker_id=0) as broker, a_wire_client(broker.port) as client:
        create(client, a_topic("t"))
        produce(broker.bootstrap, "t", SEVERAL_FETCHES, lambda number: b"%d" % number + b"x" * 1000)
        ((here, *_),) = replicas(client, "t")
        there = "b" if here == "a" else "a"
        admin = confluent_admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        set_throttle(admin, "1")
        assert alter(client, tmp_path / there, ("t", 0)) == ["NONE"]
        assert len(replicas(client, "t")) == 2
        kill_and_restart(broker)
        with a_wire_client(broker.port) as again:
            assert [(name, future) for name, _, future, _ in replicas(again, "t")] == sorted([(here, False), (there, True)])
            set_throttle(confluent_admin.AdminClient({"bootstrap.servers": broker.bootstrap}), str(10**9))
            eventually(lambda: replicas(again, "t") == [(there, 0, False, 0)])
            values = consume(broker.bootstrap, "t", SEVERAL_FETCHES)
            assert [int(value.rstrip(b"x")) for value in values] == list(range(SEVERAL_FETCHES))


def set_throttle(admin: Any, value: str) -> None:
    resource = confluent_admin.ConfigResource(
        confluent_admin.ConfigResource.Type.BROKER,
        "0",
        incremental_configs=[confluent_admin.ConfigEntry(THROTTLE, value, incremental_operation=confluent_admin.AlterConfigOpType.SET)],
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def kill_and_restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()
