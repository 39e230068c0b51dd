"""Writes and compares records of two clusters, and works through topics as a consumer group that changes from one to the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

GROUP = "billing"
_SECONDS = 90.0
_AT_ONCE = 1_000

Place = tuple[str, int]
"""A topic and the number of a partition."""

Ends = Mapping[Place, int]
"""Behind the last record of each partition."""


class Row(NamedTuple):
    """A record to write."""

    partition: int
    key: bytes
    value: bytes
    timestamp: int
    headers: list[tuple[str, bytes]]


class Found(NamedTuple):
    """A record that was read. The timestamp is the type with the milliseconds."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: tuple[int, int]
    headers: list[tuple[str, bytes]] | None


def rows(prefix: str, numbers: range, partitions: int, began_ms: int) -> Iterator[Row]:
    """One for each number: the partitions in turns, some without a key, some with headers."""
    for number in numbers:
        headers = [("number", str(number).encode()), ("empty", b"")] if number % 10 == 0 else []
        key = b"" if number % 7 == 0 else f"k{number % 97}".encode()
        yield Row(number % partitions, key, f"{prefix} {number}".encode(), began_ms + number, headers)


def write(bootstrap: str, topic: str, written: Iterable[Row]) -> None:
    """Write the rows in their order; returns when all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    failures: list[str] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for row in written:
        while True:
            try:
                producer.produce(
                    topic, row.value, row.key or None, row.partition, on_delivery, timestamp=row.timestamp, headers=row.headers
                )
            except BufferError:
                producer.poll(0.1)
            else:
                break
        producer.poll(0)
    assert producer.flush(_SECONDS) == 0
    assert not failures, failures[:3]


def end_of(bootstrap: str, topic: str, partition: int) -> int:
    """Behind the last record; -1 while the cluster does not know the partition or does not answer."""
    consumer = _consumer(bootstrap)
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1])
    except KafkaException:
        return -1
    finally:
        consumer.close()


def ends_of(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """`end_of` for each partition."""
    return [end_of(bootstrap, topic, number) for number in range(partitions)]


def records_of(bootstrap: str, topic: str, partition: int) -> Iterator[Found]:
    """All records up to the present end, in order."""
    consumer = _consumer(bootstrap)
    try:
        position, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SECONDS)
        consumer.assign([TopicPartition(topic, partition, position)])
        deadline = time.monotonic() + _SECONDS
        while position < end:
            assert time.monotonic() < deadline, f"{topic}-{partition} is read to {position} of {end} within {_SECONDS} s"
            for message in consumer.consume(_AT_ONCE, 1.0):
                assert message.error() is None, message.error()
                offset, timestamp = message.offset(), message.timestamp()
                assert offset is not None
                position = offset + 1
                yield Found(offset, message.key(), message.value(), timestamp, message.headers())
    finally:
        consumer.close()


def assert_equal(one: tuple[str, str], other: tuple[str, str], partitions: int) -> int:
    """Compare two topics, each given by the address of a broker and its name, record by record; the number of records."""
    count = 0
    for number in range(partitions):
        for left, right in zip_longest(records_of(*one, number), records_of(*other, number)):
            assert left == right, f"partition {number}: {left} of {one} is not {right} of {other}"
            count += 1
    return count


def work(bootstrap: str, ends: Ends) -> list[tuple[Place, int, bytes]]:
    """Consume as GROUP from its committed offsets up to these ends, commit, and leave; place, offset and value of each record.

    The group reads a partition without a committed offset from its beginning.
    """
    topics = sorted({topic for topic, _ in ends})
    consumer = _consumer(bootstrap)
    try:
        positions = committed(bootstrap, ends)
        consumer.subscribe(topics)
        done = []
        deadline = time.monotonic() + _SECONDS
        while any(max(positions[place], 0) < end for place, end in ends.items()):
            assert time.monotonic() < deadline, f"{GROUP} has come to {positions} of {ends} within {_SECONDS} s"
            for message in consumer.consume(_AT_ONCE, 0.2):
                assert message.error() is None, message.error()
                place = (message.topic() or "", message.partition() or 0)
                offset = message.offset() or 0
                if offset < ends[place]:
                    positions[place] = offset + 1
                    done.append((place, offset, message.value() or b""))
        at = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items() if offset >= 0]
        consumer.commit(offsets=at, asynchronous=False)
        return done
    finally:
        consumer.close()


def committed(bootstrap: str, places: Iterable[Place]) -> dict[Place, int]:
    """The offsets that GROUP has committed; negative without one."""
    consumer = _consumer(bootstrap)
    try:
        found = consumer.committed([TopicPartition(topic, number) for topic, number in places], timeout=_SECONDS)
        return {(each.topic, each.partition): each.offset for each in found}
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )
