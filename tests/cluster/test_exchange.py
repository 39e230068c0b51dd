"""One broker in turn of Apache Kafka and of Ottla on the same ZooKeeper, directory, id and port.

Each serves what the other left: topics with their ids and configs, records of all codecs, committed offsets, the start of logs whose
records were deleted, compacted topics; after clean stops and after kills.
"""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from ottla.client.cluster import Cluster as Client
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, ClusterBroker
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.mixed_cluster import a_cluster_of_apache_kafka, exchange

pytestmark = [*needs_apache_kafka, needs_zookeeper_store, pytest.mark.slow, pytest.mark.timeout(600)]  # JVMs, on a busy machine

SECONDS = 90.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS: dict[str, dict[str, str]] = {
    **{codec: {} for codec in CODECS},
    "small": {"segment.bytes": "16384", "retention.ms": "-1", "max.message.bytes": "200000"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}
CONFIG = {"log.cleaner.backoff.ms": "500", "log.flush.start.offset.checkpoint.interval.ms": "500", "log.initial.task.delay.ms": "500"}
Known = dict[str, tuple[bytes, int, dict[str, str]]]
"""Id, number of partitions and overrides by topic."""


def admin(broker: ClusterBroker) -> AdminClient:
    """Keep it until the answers are there: it gives up when nobody has it."""
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def write(broker: ClusterBroker, topic: str, begin: int, end: int, codec: str = "none", *, keys: int | None = None) -> None:
    config = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 5}
    producer = Producer({**config, "batch.size": 8_000, "log_level": 0})
    failures: list[object] = []
    for number in range(begin, end):
        key = str(number if keys is None else number % keys).encode()
        value = f"{number}-{'x' * 100}".encode()
        producer.produce(topic, value, key, partition=0, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(SECONDS) == 0
    assert failures == []


def read(broker: ClusterBroker, topic: str) -> list[tuple[int, str, int, tuple[int, int]]]:
    """Offset, key, number and timestamp of every record."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, str, int, tuple[int, int]]] = []
    try:
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{topic}: nothing behind {found[-1:]}"
            if message.error() is not None:
                return found
            value, key = message.value() or b"", message.key() or b""
            found.append((message.offset() or 0, key.decode(), int(value.partition(b"-")[0]), message.timestamp()))
    finally:
        consumer.close()


def numbers(broker: ClusterBroker, topic: str) -> list[int]:
    return [number for _, _, number, _ in read(broker, topic)]


def commit(broker: ClusterBroker, group: str, topic: str, offset: int) -> None:
    """As a member that has joined would, and leave."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0})
    consumer.subscribe([topic])

    def assigned() -> bool:
        consumer.poll(0.05)
        return bool(consumer.assignment())

    try:
        eventually(assigned, SECONDS, f"{group} is given {topic}")
        consumer.commit(offsets=[TopicPartition(topic, 0, offset, f"at {offset}")], asynchronous=False)
    finally:
        consumer.close()


def committed(broker: ClusterBroker, group: str) -> dict[str, tuple[int, str | None]]:
    client = admin(broker)
    (future,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {each.topic: (each.offset, each.metadata) for each in future.result(SECONDS).topic_partitions}


def groups(broker: ClusterBroker) -> dict[str, str]:
    client = admin(broker)
    found = client.list_consumer_groups().result(SECONDS)
    assert found.errors == []
    return {each.group_id: each.state.name for each in found.valid}


def known(broker: ClusterBroker) -> Known:
    with Client(broker.bootstrap, timeout_seconds=SECONDS) as client:
        topics = {topic.name: topic for topic in client.refresh(None).topics if not topic.is_internal}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics if name]
    found: Known = {}
    if not resources:  # a broker that has just begun
        return found
    asking = admin(broker)
    for resource, future in asking.describe_configs(resources).items():
        overrides = {name: str(entry.value) for name, entry in future.result(SECONDS).items() if entry.source == 1}
        topic = topics[resource.name]
        found[resource.name] = (topic.topic_id, len(topic.partitions), overrides)
    return found


def make_topics(broker: ClusterBroker, configs: dict[str, dict[str, str]]) -> None:
    client = admin(broker)
    for future in client.create_topics([NewTopic(name, 1, 1, config=config) for name, config in configs.items()]).values():
        future.result(SECONDS)


def delete_records(broker: ClusterBroker, topic: str, before: int) -> None:
    client = admin(broker)
    (future,) = client.delete_records([TopicPartition(topic, 0, before)]).values()
    assert future.result(SECONDS).low_watermark == before


def wait_for_checkpoint(broker: ClusterBroker, topic: str, start: int) -> None:
    """Until the log start is where a broker that is killed finds it."""
    path = broker.data / "log-start-offset-checkpoint"
    eventually(lambda: f"{topic} 0 {start}" in path.read_text().splitlines(), SECONDS, f"{path} has {start} of {topic}")


def change_config(broker: ClusterBroker, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    client = admin(broker)
    (future,) = client.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]).values()
    future.result(SECONDS)


def end(broker: ClusterBroker, how: str) -> None:
    if how == "stop":
        assert broker.stop() == 0
    else:
        broker.kill()


def complaints(broker: ClusterBroker) -> list[str]:
    """Errors in the log of this run, and what was said of logs that are not as they should be."""
    return [line for line in broker.log_of_this_run().splitlines() if " ERROR " in line or ("kafka.log" in line and " WARN " in line)]


def in_turn(cluster: Cluster, apache: Any, how: str) -> ClusterBroker:
    """End the broker, and have the other kind go on."""
    count = len(known(cluster.broker(0)))
    end(cluster.broker(0), how)
    broker = exchange(cluster, apache, 0)
    eventually(lambda: len(known(broker)) == count, SECONDS, f"the broker knows {count} topics")
    return broker


@pytest.mark.soak
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_each_serves_what_the_other_left_and_goes_on_with_it(tmp_path: Path, how: str) -> None:
    with a_cluster_of_apache_kafka(tmp_path, 1, CONFIG) as (cluster, apache):
        theirs = cluster.broker(0)
        make_topics(theirs, CONFIGS)
        for codec in CODECS:
            write(theirs, codec, 0, 300, codec)
        write(theirs, "small", 0, 500)
        write(theirs, "compacted", 0, 500, keys=7)
        write(theirs, "stamped", 0, 20, "zstd")
        delete_records(theirs, "small", 123)
        wait_for_checkpoint(theirs, "small", 123)
        for number, topic in enumerate(("none", "small", "stamped")):
            commit(theirs, f"group-{topic}", topic, 10 + number)
        topics, states = known(theirs), groups(theirs)
        records = {topic: read(theirs, topic) for topic in CONFIGS if topic != "compacted"}
        offsets = {group: committed(theirs, group) for group in states}

        ours = in_turn(cluster, apache, how)
        assert known(ours) == topics
        assert {topic: read(ours, topic) for topic in records} == records
        assert sorted({key: number for _, key, number, _ in read(ours, "compacted")}.values()) == list(range(493, 500))
        eventually(lambda: groups(ours) == states, what=f"the groups are {states}")
        assert {group: committed(ours, group) for group in states} == offsets
        assert complaints(ours) == []

        for codec in CODECS:
            write(ours, codec, 300, 400, codec)
        write(ours, "small", 500, 900)
        write(ours, "compacted", 500, 1000, keys=7)
        write(ours, "stamped", 20, 40, "lz4")
        delete_records(ours, "small", 456)
        wait_for_checkpoint(ours, "small", 456)
        change_config(ours, "small", "retention.bytes", "1000000000")
        make_topics(ours, {"new": {"cleanup.policy": "compact,delete"}})
        write(ours, "new", 0, 100, "gzip")
        commit(ours, "group-none", "none", 350)
        commit(ours, "group-new", "new", 77)
        topics, states = known(ours), groups(ours)
        assert topics["small"][2]["retention.bytes"] == "1000000000"
        records = {topic: read(ours, topic) for topic in topics if topic != "compacted"}
        offsets = {group: committed(ours, group) for group in states}

        again = in_turn(cluster, apache, how)
        assert known(again) == topics
        assert {topic: read(again, topic) for topic in records} == records
        assert numbers(again, "small") == list(range(456, 900))
        assert sorted({key: number for _, key, number, _ in read(again, "compacted")}.values()) == list(range(993, 1000))
        eventually(lambda: groups(again) == states, what=f"the groups are {states}")
        assert {group: committed(again, group) for group in states} == offsets
        assert offsets["group-none"]["none"] == (350, "at 350")
        write(again, "new", 100, 110)
        assert numbers(again, "new") == list(range(110))
        assert complaints(again) == []
