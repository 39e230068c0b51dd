"""Apache Kafka 3.9.1 and Ottla replicate logs of message formats 0 and 1 to each other, and open those that the other wrote and cleaned.

inter.broker.protocol.version is 2.8, the last with which Apache Kafka 3.9 heeds message.format.version.
"""

from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.records.batch import CURRENT_MAGIC, iter_batches
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.mixed_cluster import a_cluster_of_apache_kafka, dumps_of, exchange, wait_until_replicas_are_equal
from tests.support.reassignments import elect_preferred

pytestmark = [
    *needs_apache_kafka,
    needs_zookeeper_store,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # JVMs, on a busy machine
    pytest.mark.soak,
]

FORMATS = {"old-0": "0.9.0", "old-1": "0.10.2"}
CODECS = ("none", "gzip", "snappy", "lz4")
COMPACTED = "compacted"
CONFIG = {"inter.broker.protocol.version": "2.8", "log.cleaner.backoff.ms": "500", "log.initial.task.delay.ms": "500"}
OLD_CLIENT = {"api.version.request": False, "broker.version.fallback": "0.10.2"}
COUNT = 10
KEYS = 10
SECONDS = 90.0

History = dict[tuple[str, int], list[bytes]]
"""The values that were written to each partition."""


def write_all(producer: Producer, records: list[tuple[str, int, bytes | None, bytes]]) -> None:
    """Write (topic, partition, key, value), acknowledged by all replicas."""
    failures: list[object] = []
    for topic, partition, key, value in records:
        producer.produce(topic, value, key, partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(SECONDS) == 0
    assert failures == []


def write(cluster: Cluster, history: History) -> None:
    """Write with every codec, as a producer of before 2017 and as one of today, to both partitions of each topic."""
    for codec in CODECS:
        for client in (OLD_CLIENT, {}):
            config = {"bootstrap.servers": cluster.bootstrap, "compression.codec": codec, "acks": "all", "linger.ms": 20, **client}
            records: list[tuple[str, int, bytes | None, bytes]] = []
            for topic in FORMATS:
                for partition in (0, 1):
                    known = history[topic, partition]
                    for number in range(COUNT):
                        known.append(b"%d-%s" % (len(known), codec.encode()))
                        records.append((topic, partition, b"key" if number % 2 else None, known[-1]))
            write_all(Producer(config), records)


def read(cluster: Cluster, topic: str, partition: int, client: dict[str, object]) -> list[tuple[bytes | None, bytes]]:
    """The keys and values of a partition."""
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**config, **client})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[bytes | None, bytes]] = []
    try:
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{topic}-{partition}: nothing behind {found[-1:]}"
            if message.error() is not None:
                return found
            found.append((message.key(), message.value() or b""))
    finally:
        consumer.close()


def check(cluster: Cluster, history: History) -> None:
    """Both replicas are equal, Apache Kafka's tool reads them, and clients of any age find every record."""
    for (topic, partition), values in history.items():
        wait_until_replicas_are_equal(cluster, topic, partition, count=2)
        for client in (OLD_CLIENT, {}):
            assert [value for _, value in read(cluster, topic, partition, client)] == values
        for dump in dumps_of(cluster, topic, partition).values():
            assert dump.count("payload") == len(values)


def settle(cluster: Cluster) -> None:
    """Both brokers are in sync, and each leads the partitions that prefer it."""
    for topic in FORMATS:
        for partition in (0, 1):
            cluster.wait_until_isr_is(topic, partition, 0, 1)
        elect_preferred(cluster, topic, 0, 1)
        for partition in (0, 1):
            eventually(lambda at=partition, of=topic: cluster.leader_of(of, at) == at, what=f"{topic}-{partition} has its leader")


def become_the_other_kind(cluster: Cluster, apache: ApacheKafka, broker_id: int) -> None:
    assert cluster.broker(broker_id).stop() == 0
    exchange(cluster, apache, broker_id)
    settle(cluster)


def magics(log: Path) -> set[int]:
    """The formats in the segments of a log."""
    return {header.magic for segment in log.glob("*.log") for _, header in iter_batches(segment.read_bytes())}


def test_logs_of_old_formats_are_replicated_and_opened_both_ways(tmp_path: Path) -> None:
    history: History = defaultdict(list)
    with a_cluster_of_apache_kafka(tmp_path, 2, CONFIG) as (cluster, apache):
        for topic, release in FORMATS.items():
            cluster.create_topic(topic, replicas=[[0, 1], [1, 0]], message_format_version=release)
        compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_bytes": 4096}
        cluster.create_topic(COMPACTED, replicas=[[0, 1]], message_format_version="0.10.2", **compacted)
        write(cluster, history)

        become_the_other_kind(cluster, apache, 0)  # Ottla opens what Apache Kafka wrote, leads one half and follows the other
        write(cluster, history)
        check(cluster, history)

        assert cluster.broker(1).stop() == 0
        write(cluster, history)
        cluster.broker(1).start()  # Apache Kafka copies from Ottla what it missed
        settle(cluster)
        write(cluster, history)
        check(cluster, history)
        for topic in FORMATS:
            for broker in cluster.brokers.values():
                assert magics(broker.data / f"{topic}-0") == {int(topic[-1])}

        records = [(COMPACTED, 0, b"%d" % (number % KEYS), b"%d" % number + bytes(100)) for number in range(300)]
        write_all(Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 20, "batch.num.messages": 20}), records)
        eventually(lambda: CURRENT_MAGIC in magics(cluster.broker(0).data / f"{COMPACTED}-0"), SECONDS, "Ottla has cleaned the log")

        become_the_other_kind(cluster, apache, 0)  # Apache Kafka opens what Ottla wrote and cleaned
        write(cluster, history)
        check(cluster, history)
        latest = {key: value for _, _, key, value in records}
        cluster.wait_until_isr_is(COMPACTED, 0, 0, 1)
        elect_preferred(cluster, COMPACTED, 0)
        assert dict(read(cluster, COMPACTED, 0, {})) == latest
        dumps_of(cluster, COMPACTED, 0)
