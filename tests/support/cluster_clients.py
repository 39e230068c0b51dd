"""Runs real clients while a test changes the cluster: an idempotent producer and consumers that record a history.

with a_writer(cluster, "t", history) as writer:
    cluster.broker(0).kill()
    writer.go_on_for(500)
read_all(cluster, "t", history)
assert history.violations() == []
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster
from tests.support.history import UNKNOWN_OFFSET, History, Place, Record, decode

FLUSH_SECONDS = 90.0
READ_SECONDS = 90.0
_QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 5_000,
    # A suspended broker keeps its connections open: only these timeouts make a client look elsewhere.
    "socket.timeout.ms": 2_000,
    "log_level": 0,
}


class Writer:
    """Writes to the partitions in turns, in a thread with an idempotent producer for each: a bounded number of records at a time.

    One producer would not do for several partitions. A broker that does not lead yet may refuse the first of librdkafka's pipelined
    batches, and as leader refuse the next for its sequence number. Then librdkafka takes a new epoch for all partitions, and repeats
    batches of others that are written already (its issue 4953).
    """

    def __init__(self, cluster: Cluster, topic: str, history: History, name: str, partitions: int, pause_seconds: float) -> None:
        self._topic = topic
        self._history = history
        self._name = name
        self._pause_seconds = pause_seconds
        self.longest_wait = 0.0
        """Between two acknowledgements."""
        self._last_told = time.monotonic()
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._producers = [self._producer(cluster.bootstrap) for _ in range(partitions)]
        self._thread = threading.Thread(target=self._run, name=f"writer-{name}")

    @staticmethod
    def _producer(bootstrap: str) -> Producer:
        return Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 40,  # each request costs its leader and two followers
                "batch.size": 8_000,  # segments of tests are small
                "message.timeout.ms": 200_000,
                "request.timeout.ms": 2_000,
                "queue.buffering.max.messages": 1_000,
                **_QUICK,
            }
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def give_up(self) -> None:
        """Send no more, and forget what was sent: the test has failed."""
        self._stop.set()
        self._thread.join()
        for producer in self._producers:
            producer.purge()

    def stop(self) -> None:
        """Send no more, and wait for what was sent."""
        self._stop.set()
        self._thread.join()
        left = sum(producer.flush(FLUSH_SECONDS) for producer in self._producers)
        assert left == 0, f"{left} records of writer {self._name} were never answered"
        assert not self.failures, f"{len(self.failures)} records failed, the first: {self.failures[0]}"

    def go_on_for(self, records: int, seconds: float = 90.0) -> None:
        """Until so many more were acknowledged."""
        enough = self._history.acknowledged_count + records
        eventually(lambda: self._history.acknowledged_count >= enough, seconds, f"{records} more records are acknowledged")

    def _run(self) -> None:
        sequence = 0
        while not self._stop.is_set():
            record = Record(self._name, sequence)
            partition = sequence % len(self._producers)
            producer = self._producers[partition]
            self._history.sent(record, partition)
            try:
                producer.produce(self._topic, record.encode(100), partition=partition, on_delivery=self._on_delivery)
            except BufferError:
                producer.poll(0.05)
                continue
            sequence += 1
            for each in self._producers:
                each.poll(0)
            if self._pause_seconds:
                time.sleep(self._pause_seconds)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        record = decode(value)
        if error is not None:
            self.failures.append(f"{record}: {error}")
            return
        now = time.monotonic()
        self.longest_wait = max(self.longest_wait, now - self._last_told)
        self._last_told = now
        offset = message.offset()
        place = Place(message.partition() or 0, UNKNOWN_OFFSET if offset is None else offset)
        self._history.acknowledged(record, place)


@contextmanager
def a_writer(
    cluster: Cluster, topic: str, history: History, *, name: str = "w", partitions: int = 1, pause_seconds: float = 0.004
) -> Iterator[Writer]:
    """Writes until the end of the block, where all that was sent must be acknowledged."""
    writer = Writer(cluster, topic, history, name, partitions, pause_seconds)
    writer.start()
    try:
        writer.go_on_for(20)
        yield writer
    except BaseException:
        writer.give_up()
        raise
    writer.stop()


@contextmanager
def a_reader(cluster: Cluster, topic: str, history: History, *, name: str = "r", partitions: int = 1) -> Iterator[None]:
    """A consumer that reads along from the beginning, on partitions given by hand, until the end of the block."""
    stop = threading.Event()
    consumer = _consumer(cluster)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def read() -> None:
        while not stop.is_set():
            _poll(consumer, history, name)

    thread = threading.Thread(target=read, name=f"reader-{name}")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        consumer.close()


def end_of(consumer: Consumer, partition: TopicPartition, acknowledged_end: int, seconds: float = READ_SECONDS) -> int:
    """The high watermark.

    A new leader may not know the high watermark of its predecessor yet. So this waits until it reaches the acknowledged end, or until the
    time limit; the judge then finds lost records. A restarted broker may not know the topic yet.
    """
    deadline = time.monotonic() + seconds
    while True:
        is_late = time.monotonic() > deadline
        try:
            end = int(consumer.get_watermark_offsets(partition, timeout=seconds)[1])
        except KafkaException:
            if is_late:
                raise
        else:
            if end >= acknowledged_end or is_late:
                return end
        time.sleep(0.1)


def read_all(cluster: Cluster, topic: str, history: History, *, partitions: int = 1, name: str = "final") -> None:
    """Read the topic from its beginning to the ends that it has now."""
    consumer = _consumer(cluster)
    try:
        ends = {}
        for number in range(partitions):
            ends[number] = end_of(consumer, TopicPartition(topic, number), history.acknowledged_end(number))
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        deadline = time.monotonic() + READ_SECONDS
        while True:
            positions = {each.partition: each.offset for each in consumer.position([TopicPartition(topic, number) for number in ends])}
            if all(positions[number] >= end or end == 0 for number, end in ends.items()):
                history.came_to_the_end(name)
                return
            assert time.monotonic() < deadline, f"read up to {positions} of {ends}"
            _poll(consumer, history, name)
    finally:
        consumer.close()


def _consumer(cluster: Cluster) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "fetch.min.bytes": 4_000,
            **_QUICK,
        }
    )


def _poll(consumer: Consumer, history: History, name: str) -> None:
    for message in consumer.consume(500, timeout=0.05):
        if message.error() is None:
            value = message.value()
            assert value is not None
            history.polled(name, decode(value), Place(message.partition() or 0, message.offset() or 0))
        else:
            assert not message.error().fatal(), message.error()
