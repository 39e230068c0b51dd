"""The same log cleaned by us and by Apache Kafka's cleaner; and ours under Apache's eyes: DumpLogSegments, and a broker that opens it."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.records.batch import BatchHeader, iter_batches
from ottla.protocol.records.reader import Record, iter_records
from ottla.protocol.topic_partition import TopicPartition as StoragePartition
from ottla.storage.disk.checkpoint import CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint
from ottla.storage.disk.filesystem import RealFileSystem
from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.apache_kafka.tools import run_tool
from tests.support.cleaners import clean_log
from tests.support.log_manager import Disks

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

TOPIC = "compacted"
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "0.01", "index.interval.bytes": "500"}
ROUNDS = 18
Content = list[tuple[str, BatchHeader, list[Record]]]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    config = {"num.partitions": "1", "log.cleaner.enable": "false", "log.cleaner.backoff.ms": "100"}
    with ApacheKafka(tmp_path_factory.mktemp("compaction"), config=config) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
        yield running


def produce(kafka: ApacheKafka) -> None:
    """Plain and compressed batches, an idempotent producer that falls silent, transactions of both ends, tombstones."""
    started_ms = int(time.time() * 1000) - 1_000_000  # not so long ago that the producers have expired
    for round_ in range(ROUNDS):
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[round_ % 5]
        config = {"bootstrap.servers": kafka.bootstrap, "linger.ms": 50, "compression.type": codec}
        if round_ % 3 == 1:
            config["enable.idempotence"] = True
        if round_ % 3 == 2:
            config["transactional.id"] = f"transactions-{round_ % 2}"
        producer = Producer(config)
        if round_ % 3 == 2:
            producer.init_transactions(30)
            producer.begin_transaction()
        for number in range(20):
            value = None if (round_ + number) % 7 == 0 else b"round %d " % round_ + bytes(30)
            producer.produce(TOPIC, value, b"key-%d" % (number * (1 + round_ % 4)), timestamp=started_ms + round_ * 1000 + number)
        assert producer.flush(30) == 0
        if round_ % 3 == 2:
            if round_ % 2:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)


def consume(kafka: ApacheKafka) -> dict[bytes, bytes | None]:
    """What a read-committed consumer ends up with."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = {}
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            break
        found[message.key() or b""] = message.value()
    consumer.close()
    return found


def content(directory: Path, end_offset: int) -> Content:
    """Headers without what depends on the compressor or the hour, and records, of what was cleaned."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_batches(data):
            if header.base_offset < end_offset:
                base_timestamp = 0 if header.has_delete_horizon else header.base_timestamp
                records = list(iter_records(data, position, header))
                found.append((path.name, header._replace(batch_length=0, crc=0, base_timestamp=base_timestamp), records))
    return found


def clean_ours(data: Path) -> int:
    disks = Disks(RealFileSystem(), str(data))
    disks.clock.move(int(time.time() * 1000) - disks.clock.now_ms())
    disks.topics[TOPIC] = CONFIG
    manager = disks.a_manager(log_index_size_max_bytes=10 * 1024 * 1024)
    manager.open()
    stored = manager.directories.all[str(data)].meta_properties
    assert stored is not None
    manager.identify(stored.cluster_id or "", 0)
    manager.load()
    log = manager.get(StoragePartition(TOPIC, 0))
    assert log is not None
    end_offset = clean_log(log).end_offset
    disks.settle()
    manager.shutdown()
    return end_offset


def dump(directory: Path) -> str:
    names = [str(path) for path in sorted(directory.iterdir()) if path.suffix in (".log", ".index", ".timeindex", ".txnindex")]
    return run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(names)).stdout


def wait_until_cleaned(data: Path, end_offset: int) -> None:
    deadline = time.monotonic() + 60
    while OffsetCheckpoint(str(data), CLEANER_OFFSET_CHECKPOINT, RealFileSystem()).read().get(StoragePartition(TOPIC, 0)) != end_offset:
        assert time.monotonic() < deadline, "Apache Kafka did not clean the log"
        time.sleep(0.1)


@pytest.mark.soak
def test_we_leave_what_apache_kafka_leaves_and_it_finds_nothing_wrong(kafka: ApacheKafka, tmp_path: Path) -> None:
    produce(kafka)
    values = consume(kafka)
    data = kafka.data_directory()
    directory = data / f"{TOPIC}-0"
    kafka.stop_broker(0)
    shutil.copytree(directory, tmp_path / "before")

    end_offset = clean_ours(data)
    ours = content(directory, end_offset)
    assert len(ours) < len(content(tmp_path / "before", end_offset))
    said = dump(directory)
    assert "isvalid: true" in said
    assert not [line for line in said.splitlines() if "isvalid: false" in line or "mismatch" in line.lower() or "corrupt" in line.lower()]
    kafka.start_broker(0)
    assert [line for line in kafka.log_text().splitlines() if (" WARN " in line and "kafka.log" in line) or " ERROR " in line] == []
    assert consume(kafka) == values

    kafka.stop_broker(0)
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "before", directory)
    kafka._config["log.cleaner.enable"] = "true"
    kafka.start_broker(0)
    wait_until_cleaned(data, end_offset)
    kafka.stop_broker(0)
    assert content(directory, end_offset) == ours
    kafka.start_broker(0)
    assert consume(kafka) == values
