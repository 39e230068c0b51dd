"""Runs a broker process whose closed segments go to S3, and tells what its disk, the metadata of its copies and the bucket have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from ottla.protocol.uuid import to_text
from ottla.storage.remote.entries import SegmentState
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from ottla.storage.remote.metadata.packed_entries import end_of, start_of
from ottla.storage.remote.metadata.records import SEGMENT, partition_of, read_record
from tests.support.broker_process import BrokerProcess, eventually
from tests.support.moto_server import s3_keys
from tests.support.s3_servers import S3Server

OBJECTS_OF_A_COPY = {"log", "indexes", "rsm-manifest"}
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE,
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "50",
    "remote.log.manager.task.retry.backoff.ms": "50",
    "remote.log.manager.task.retry.backoff.max.ms": "200",
    "log.retention.check.interval.ms": "50",
    "log.initial.task.delay.ms": "50",
    "remote.fetch.max.wait.ms": "200",
}
TOPIC = {
    "segment.bytes": "14000", "local.retention.bytes": "1", "retention.ms": "-1", "retention.bytes": "-1",
    "index.interval.bytes": "1000", "file.delete.delay.ms": "0",
}  # fmt: skip
BATCH = 5


@dataclass
class Copy:
    """A copy in the metadata. `was_finished` tells if it ever was COPY_SEGMENT_FINISHED."""

    topic: str
    start_offset: int
    end_offset: int
    state: SegmentState
    was_finished: bool


class Killed(Exception):
    """The broker was killed while the test waited for it."""


class Reading:
    """A consumer and what it has read."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.found: list[tuple[int, bytes | None]] = []

    def poll(self) -> None:
        """Takes in what has come."""
        for message in self._consumer.consume(500, 0.1):
            assert message.error() is None, message.error()
            self.found.append((message.offset(), message.value()))


class TieredBroker(BrokerProcess):
    """A broker whose store is the bucket `bucket` of the S3 at this address."""

    def __init__(self, directory: Path, s3: str, **keys: str) -> None:
        super().__init__(directory, **SETTINGS, **s3_keys(s3, **keys))

    # -- what it is asked ----------------------------------------------------------------------------------------------------

    def create(self, topic: str, **config: str) -> None:
        """Creates a topic of one partition."""
        admin = self._admin()  # its end would be that of the request
        self._await_answer(admin.create_topics([NewTopic(topic, 1, 1, config=TOPIC | config)])[topic])

    def configure(self, topic: str, **config: str) -> None:
        """Changes keys of a topic, with underscores for dots. Raises Killed."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self._admin()  # its end would be that of the request
        self._await_answer(admin.incremental_alter_configs([resource])[resource])

    def fill(self, topic: str, first: int, end: int) -> None:
        """Produces the records from `first` to before `end`, in batches of five."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1000, "batch.num.messages": BATCH, "acks": "all"})
        failures: list[KafkaError] = []
        for at in range(first, end):
            producer.produce(
                topic,
                value_of(at),
                partition=0,
                timestamp=time_of(at),
                on_delivery=lambda error, _: error is not None and failures.append(error),
            )
            if at % BATCH == BATCH - 1:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0
        assert not failures, failures

    def consume(self, topic: str, first: int, end: int) -> list[tuple[int, bytes | None]]:
        """Reads from an offset until the record before `end`; an offset that is out of range becomes the first."""
        with self.reading(topic, first) as reading:

            def has_all() -> bool:
                reading.poll()
                return bool(reading.found) and reading.found[-1][0] >= end - 1

            self.await_(has_all, "the last record")
            return reading.found

    @contextmanager
    def reading(self, topic: str, first: int) -> Iterator[Reading]:
        """A consumer from this offset on."""
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, 0, first)])
        try:
            yield Reading(consumer)
        finally:
            consumer.close()

    def log_start(self, topic: str) -> int:
        """The log start offset."""
        consumer = self._consumer()
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)[0])
        finally:
            consumer.close()

    def offset_of(self, topic: str, timestamp: int) -> int:
        """The offset of the first record that is not older."""
        consumer = self._consumer()
        try:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], 60)
            assert found.error is None, found.error
            return int(found.offset)
        finally:
            consumer.close()

    def await_(self, condition: Callable[[], object], what: str) -> None:
        """Waits for a condition. Raises Killed."""

        def is_over() -> bool:
            try:
                return bool(condition()) or not self.is_running
            except FileNotFoundError:  # a file was removed between its listing and its reading
                return False

        eventually(is_over, what=what)
        if not self.is_running:
            raise Killed

    def _await_answer(self, future: Future[Any]) -> None:
        self.await_(future.done, "the answer of the broker")
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TRANSPORT:
                raise
            eventually(lambda: not self.is_running, what="the end of a broker that does not answer")
            raise Killed from error

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "g",
                "enable.auto.commit": False,
                "check.crcs": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                "log_level": 0,
            }
        )

    # -- what it has, also when it is dead -----------------------------------------------------------------------------------

    def copies(self, topic: str) -> dict[str, Copy]:
        """The copies of a topic by the uuid in their objects' names, in the order of their records."""
        found: dict[str, Copy] = {}
        names: dict[bytes, str] = {}
        for value in self._metadata():
            record = read_record(value)
            name = to_text(record.key.to_bytes(16, "big"))
            if record.kind == SEGMENT:
                partition = partition_of(value)
                assert partition is not None
                names[record.place] = partition.topic
                found[name] = Copy(partition.topic, start_of(record.packed), end_of(record.packed), SegmentState(0), False)
            elif name in found:
                copy = found[name]
                copy.state = SegmentState(record.state)
                copy.was_finished |= copy.state is SegmentState.COPY_SEGMENT_FINISHED
        return {name: copy for name, copy in found.items() if copy.topic == topic}

    def local_bases(self, topic: str) -> list[int]:
        """Base offsets of the segments that are on its disk."""
        return sorted(int(path.stem) for path in (self.data / f"{topic}-0").glob("*.log"))

    def are_all_copied(self, topic: str) -> bool:
        """Tells if closed segments are in the store only."""
        finished = [copy for copy in self.copies(topic).values() if copy.state is SegmentState.COPY_SEGMENT_FINISHED]
        bases = self.local_bases(topic)
        return len(bases) == 1 and bases[0] > 0 and bool(finished) and max(copy.end_offset for copy in finished) == bases[0] - 1

    def _metadata(self) -> Iterator[bytes]:
        for path in sorted((self.data / f"{METADATA_TOPIC}-0").glob("*.log")):
            data = path.read_bytes()
            for at, header in iter_batches(data):
                for record in iter_records(data, at, header):
                    assert record.value is not None
                    yield record.value


@contextmanager
def a_tiered_broker(directory: Path, s3: str, **keys: str) -> Iterator[TieredBroker]:
    """A broker that runs, and is killed at the end."""
    broker = TieredBroker(directory, s3, **keys)
    try:
        yield broker.start()
    except BaseException:
        print(f"--- the broker's log ---\n{broker.log()}")
        raise
    finally:
        if broker.is_running:
            broker.kill()


def time_of(offset: int) -> int:
    """The timestamp of a record."""
    return 1_700_000_000_000 + offset


def value_of(offset: int) -> bytes:
    """The value of a record, half a KiB."""
    return f"{offset:05d}".encode() * 100


def records(first: int, end: int) -> list[tuple[int, bytes]]:
    """Offsets and values of these records."""
    return [(at, value_of(at)) for at in range(first, end)]


def objects_by_copy(s3: S3Server, topic: str, bucket: str = "bucket") -> dict[str, set[str]]:
    """The kinds of the topic's objects in the bucket, by the uuid of the copy."""
    found: dict[str, set[str]] = {}
    for key in s3.keys(bucket):
        if key.startswith(f"{topic}-"):
            name, _, kind = key.rpartition("/")[2].partition(".")
            found.setdefault(name.partition("-")[2], set()).add(kind)
    return found
