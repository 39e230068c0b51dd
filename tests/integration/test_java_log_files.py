"""The files of a log directory under Apache Kafka's own eyes: its dump tool has no complaint, and its broker serves every record."""

import re
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.clients import CODECS, ConfluentClient, Record, read_all
from tests.support.segment_files import batch_headers

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.timeout(300)]  # dozens of JVMs, on a busy machine seconds each

DUMP = "kafka.tools.DumpLogSegments"
COUNT = 1000
MIXED = 600
DELETED = 1500
SEGMENTS = {"segment.bytes": "12000", "index.interval.bytes": "500", "retention.ms": "-1"}
OURS_ALONE = ("meta.properties", ".lock", "*.sqlite3*", "__consumer_offsets-*")
TOPICS = [f"codec-{codec}" for codec in CODECS] + ["mixed"]


def fill(broker: BrokerProcess) -> None:
    """A topic per codec and one with all of them: many batches and segments, idempotent producers, deleted records, a restart."""
    client = ConfluentClient(broker.bootstrap)
    for topic in TOPICS:
        client.create_topic(topic, config=SEGMENTS)
    for codec in CODECS:
        for start in range(0, COUNT, 100):
            numbers = range(start, start + 100)
            records = [Record(sha256(b"%d" % n).digest(), b"key-%d" % n, (("h", b"1"),), 1_700_000_000_000 + n) for n in numbers]
            client.produce(f"codec-{codec}", records, codec=codec)
        client.produce("mixed", [Record(b"%d" % n) for n in range(MIXED)], codec=codec, idempotent=True)
    client.delete_records("mixed", DELETED)
    assert broker.stop() == 0
    broker.start()
    for topic in TOPICS:
        ConfluentClient(broker.bootstrap).produce(topic, [Record(b"after a restart")])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("files"), log_segment_delete_delay_ms=0) as running:
        fill(running)
        assert running.stop() == 0
        yield running


@pytest.fixture
def a_copy(broker: BrokerProcess, tmp_path: Path) -> Path:
    return shutil.copytree(broker.data, tmp_path / "copy")


def files_of(data: Path, pattern: str) -> str:
    found = sorted(str(path) for topic in TOPICS for path in (data / f"{topic}-0").glob(pattern))
    assert len(found) >= len(TOPICS)
    return ",".join(found)


def test_the_dump_tool_reads_every_record_of_every_segment(a_copy: Path) -> None:
    dumped = run_tool(DUMP, "--deep-iteration", "--print-data-log", "--files", files_of(a_copy, "*.log"), timeout=120)

    assert (dumped.returncode, dumped.stderr) == (0, "")
    assert "isvalid: false" not in dumped.stdout
    assert len(re.findall("^baseOffset: .* isvalid: true", dumped.stdout, re.MULTILINE)) == sum(
        len(batch_headers(a_copy / f"{topic}-0")) for topic in TOPICS
    )
    for codec in CODECS:
        assert f"compresscodec: {codec} " in dumped.stdout
    assert dumped.stdout.count(" payload: ") >= COUNT * len(CODECS)


def test_the_dump_tool_finds_the_indexes_sane(a_copy: Path) -> None:
    indexes = files_of(a_copy, "*.*index")
    assert len(indexes.split(",")) > 50

    sanity = run_tool(DUMP, "--index-sanity-check", "--files", indexes, timeout=120)
    assert (sanity.returncode, sanity.stderr) == (0, "")
    assert sanity.stdout.count("passed sanity check.") == len(indexes.split(",")) - sanity.stdout.count("is empty.")

    verified = run_tool(DUMP, "--verify-index-only", "--files", indexes, timeout=120)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert "mismatch" not in verified.stdout.lower()
    assert "Found timestamp" not in verified.stdout

    snapshots = run_tool(DUMP, "--files", files_of(a_copy, "*.snapshot"))
    assert (snapshots.returncode, snapshots.stderr) == (0, "")
    assert "producerId: 0 producerEpoch: 0" in snapshots.stdout


@pytest.mark.soak
def test_apache_kafka_serves_what_this_broker_wrote(broker: BrokerProcess, tmp_path: Path) -> None:
    partitions = [(topic, 0) for topic in TOPICS]
    broker.start()
    ours = read_all(broker.bootstrap, partitions)
    assert broker.stop() == 0
    assert [len(records) for records in ours.values()] == [COUNT + 1] * len(CODECS) + [len(CODECS) * MIXED - DELETED + 1]

    with ApacheKafka(tmp_path, config={"log.initial.task.delay.ms": "600000"}, heap="256m") as kafka:
        client = ConfluentClient(kafka.bootstrap)
        for topic in TOPICS:
            client.create_topic(topic, config=SEGMENTS)
        kafka.stop_broker(0)
        move_in(broker.data, kafka.data_directory())
        kafka.start_broker(0)

        assert read_all(kafka.bootstrap, partitions) == ours
        complaints = [line for line in kafka.log_text().splitlines() if " ERROR " in line or (" WARN " in line and "kafka.log" in line)]
        assert complaints == []
        for topic in TOPICS:
            ConfluentClient(kafka.bootstrap).produce(topic, [Record(b"by Apache Kafka")])
        assert [records[-1].value for records in read_all(kafka.bootstrap, partitions).values()] == [b"by Apache Kafka"] * len(TOPICS)


def move_in(source: Path, target: Path) -> None:
    """Replace the partitions and checkpoints in `target` by those of `source`; the topics keep the ids they have there."""
    ids = {path.parent.name: path.read_text() for path in target.glob("*/partition.metadata")}
    for path in target.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "meta.properties":
            path.unlink()
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*OURS_ALONE), dirs_exist_ok=True)
    for partition in target.iterdir():
        if partition.is_dir():
            (partition / "partition.metadata").write_text(ids[partition.name])
