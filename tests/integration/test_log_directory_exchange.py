"""One log directory in turn under Apache Kafka and under LogManager.

Each opens what the other left, after clean stops and after kills, and goes on.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.topic_partition import TopicPartition as StoragePartition
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.start_errors import InconsistentBrokerId, LogDirectoryLocked
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.batches import a_batch
from tests.support.log_manager import Disks
from tests.support.logs import append

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

TOPIC = "exchange"
CONFIG = {"num.partitions": "1", "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
SEGMENTS = {"segment.bytes": "2000", "retention.ms": "-1"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("exchange"), config=CONFIG) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=SEGMENTS)])[TOPIC].result(30)
        yield running


def produce(kafka: ApacheKafka, count: int, transactional_id: str | None = None) -> None:
    config = {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1}
    producer = Producer(config if transactional_id is None else {**config, "transactional.id": transactional_id})
    if transactional_id is not None:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(TOPIC, b"theirs-%d" % number + bytes(100))
        producer.poll(0)
    if transactional_id is not None:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0


def consume(kafka: ApacheKafka) -> list[tuple[int, bytes]]:
    """(offset, value) of everything that is committed."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            break
        found.append((message.offset() or 0, message.value() or b""))
    consumer.close()
    return found


def opened(data: Path) -> tuple[LogManager, Disks, PartitionLog]:
    disks = Disks(RealFileSystem(), str(data))
    disks.topics[TOPIC] = SEGMENTS
    manager = disks.a_manager(log_index_size_max_bytes=10 * 1024 * 1024)
    manager.open()
    stored = manager.directories.all[str(data)].meta_properties
    assert stored is not None
    assert stored.cluster_id is not None
    manager.identify(stored.cluster_id, 0)
    manager.load()
    manager.start()
    log = manager.get(StoragePartition(TOPIC, 0))
    assert log is not None
    return manager, disks, log


def append_ours(log: PartitionLog, count: int, sequence: int) -> None:
    assert log.latest_epoch is not None
    for number in range(count):
        batch = a_batch(producer_id=4_000_000, base_sequence=sequence + number, key=None, value_bytes=200)
        assert not append(log, batch, epoch=log.latest_epoch, now_ms=1_800_000_000_000).is_duplicate
    log.update_high_watermark(log.log_end_offset)


def complaints(kafka: ApacheKafka) -> list[str]:
    """Warnings and errors of the broker about its logs."""
    return [line for line in kafka.log_text().splitlines() if (" WARN " in line and "kafka.log" in line) or " ERROR " in line]


def test_each_opens_what_the_other_left(kafka: ApacheKafka) -> None:
    data = kafka.data_directory()
    produce(kafka, 40)
    produce(kafka, 20, "transactions")
    disks = Disks(RealFileSystem(), str(data))
    with pytest.raises(LogDirectoryLocked):
        disks.a_manager().open()
    before = consume(kafka)

    # Theirs after a clean stop, ours after a clean stop
    kafka.stop_broker(0)
    manager, _, log = opened(data)
    assert manager.directories[str(data)].had_clean_shutdown
    assert log.log_end_offset == before[-1][0] + 2  # the marker follows the last record
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset
    append_ours(log, 30, 0)
    manager.shutdown()
    kafka.start_broker(0)
    assert complaints(kafka) == []
    after = consume(kafka)
    assert after[: len(before)] == before
    assert [value[:6] for _, value in after[len(before) :]] == [b"value-"] * 30
    produce(kafka, 10)

    # Theirs after a kill, ours after a crash
    kafka.kill_broker(0)
    manager, disks, log = opened(data)
    assert not manager.directories[str(data)].had_clean_shutdown
    assert log.log_end_offset == after[-1][0] + 11
    assert {entry.producer_id: entry.last_sequence for entry in log.active_producers()}[4_000_000] == 29
    append_ours(log, 30, 30)
    disks.settle()
    disks.crash(manager)
    kafka.start_broker(0)
    values = [value[:6] for _, value in consume(kafka)]
    assert len(values) == 40 + 20 + 30 + 10 + 30
    assert values[-30:] == [b"value-"] * 30
    assert complaints(kafka) == []
    produce(kafka, 5)


@pytest.mark.soak
def test_a_directory_of_another_broker_stays_as_it_is(kafka: ApacheKafka) -> None:
    data = kafka.data_directory()
    produce(kafka, 5)
    before = consume(kafka)
    kafka.stop_broker(0)
    manager = Disks(RealFileSystem(), str(data)).a_manager()
    manager.open()
    assert manager.stored_broker_id == 0
    stored = manager.directories.all[str(data)].meta_properties
    assert stored is not None
    with pytest.raises(InconsistentBrokerId):
        manager.identify(stored.cluster_id or "", 1)
    kafka.start_broker(0)
    assert consume(kafka) == before
