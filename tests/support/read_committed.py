"""Reads all committed records of a topic of a test's cluster, or counts them while they come, for tests of transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.cluster import Cluster
from tests.support.judged_broker import JudgedBroker

_SECONDS = 90.0


class Committed(NamedTuple):
    """A record."""

    partition: int
    offset: int
    key: str
    value: str


def read_committed(cluster: Cluster | JudgedBroker, topic: str, partitions: int = 1, level: str = "read_committed") -> list[Committed]:
    """All records up to the ends that this isolation level has now, partition by partition in order."""
    consumer = _consumer(cluster, level, tells_ends=True)
    deadline = time.monotonic() + _SECONDS
    try:
        found: list[Committed] = []
        open_partitions = set(range(partitions))
        consumer.assign([TopicPartition(topic, partition, 0) for partition in sorted(open_partitions)])
        while open_partitions:
            assert time.monotonic() < deadline, f"{topic}: partitions {open_partitions} are not read to their ends"
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    key, value = message.key() or b"", message.value() or b""
                    found.append(Committed(message.partition() or 0, message.offset() or 0, key.decode(), value.decode()))
                elif error.code() == error._PARTITION_EOF:
                    open_partitions.discard(message.partition() or 0)
                elif error.fatal():
                    raise KafkaException(error)
        return sorted(found)
    finally:
        consumer.close()


@contextmanager
def counting_committed(cluster: Cluster | JudgedBroker, topic: str, partitions: int = 1) -> Iterator[Callable[[], int]]:
    """A function that says how many committed records have come so far. To read them all again at each look would take a core."""
    consumer = _consumer(cluster, "read_committed", tells_ends=False)
    counts, last = [0], dict.fromkeys(range(partitions), -1)

    def count() -> int:
        for message in consumer.consume(1_000, 0.1):
            error = message.error()
            partition, offset = message.partition() or 0, message.offset() or 0
            if error is None and offset > last[partition]:
                last[partition] = offset
                counts[0] += 1
            elif error is not None and error.fatal():
                raise KafkaException(error)
        return counts[0]

    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        yield count
    finally:
        consumer.close()


def _consumer(cluster: Cluster | JudgedBroker, level: str, *, tells_ends: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "isolation.level": level,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": tells_ends,
            "fetch.wait.max.ms": 50,
            "socket.timeout.ms": 5_000,
            "log_level": 0,
        }
    )
