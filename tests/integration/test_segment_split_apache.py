"""A segment that Apache Kafka was splitting when it was killed, though it had been flushed: Apache Kafka and LogManager open the same."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.records.batch import iter_batches
from ottla.protocol.topic_partition import TopicPartition as StoragePartition
from ottla.storage.disk.checkpoint import RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from ottla.storage.disk.filesystem import RealFileSystem
from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.log_manager import Disks
from tests.support.logs import read_all
from tests.unit.storage.test_segment_split import FAR, FIRST, NEXT, split_by_apache_kafka

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

SUFFIXES = {"split-swap": ".swap", "split": ""}
"""Topic -> suffix of the names of the parts when the broker was killed."""


def leave_half_split(data: Path, topic: str, suffix: str) -> None:
    """Everything of the log is below its recovery point, and has indexes."""
    directory = data / f"{topic}-0"
    for file in directory.glob("0*"):
        file.unlink()
    filesystem, _ = split_by_apache_kafka(suffix)
    for path, node in filesystem.nodes.items():
        name = path.rpartition("/")[2]
        (directory / name).write_bytes(node.data)
        for index in (".index", ".timeindex"):
            (directory / name.replace(".log", index)).touch()
    checkpoint = OffsetCheckpoint(str(data), RECOVERY_POINT_CHECKPOINT, RealFileSystem())
    checkpoint.write({**checkpoint.read(), StoragePartition(topic, 0): NEXT})
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 3\n")


def offsets(kafka: ApacheKafka, topic: str) -> list[int]:
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(message.offset() or 0)
    assert message is not None
    consumer.close()
    return found


@pytest.mark.soak
def test_both_serve_every_record_once(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "apache", config={"num.partitions": "1"}, heap="256m") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for created in admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"}) for topic in SUFFIXES]).values():
            created.result(30)
        kafka.kill_broker(0)
        data = kafka.data_directory()
        for topic, suffix in SUFFIXES.items():
            leave_half_split(data, topic, suffix)
        shutil.copytree(data, tmp_path / "ours")
        kafka.start_broker(0)
        theirs = {topic: offsets(kafka, topic) for topic in SUFFIXES}
        left = {topic: sorted(int(path.stem) for path in (data / f"{topic}-0").glob("*.log")) for topic in SUFFIXES}

    disks = Disks(RealFileSystem(), str(tmp_path / "ours"))
    manager = disks.a_manager(log_index_size_max_bytes=10 * 1024 * 1024)
    manager.open()
    properties = manager.directories.all[str(tmp_path / "ours")].meta_properties
    assert properties is not None
    manager.identify(properties.cluster_id or "", 0)
    manager.load()
    for topic in SUFFIXES:
        log = manager.get(StoragePartition(topic, 0))
        assert log is not None
        ours = [header.base_offset + at for _, header in iter_batches(read_all(log)) for at in range(header.last_offset_delta + 1)]
        assert ours == theirs[topic]
        assert log.segments.bases == [FIRST, FAR + 2, 2 * FAR + 40, NEXT]
        assert left[topic] == [0, *log.segments.bases]  # Apache Kafka keeps the old one beside its parts until the cleaner comes
    disks.crash(manager)
