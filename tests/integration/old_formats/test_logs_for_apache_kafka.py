"""Apache Kafka 3.9.1 opens log directories in which Ottla wrote messages of formats 0 and 1: its dump tool, and its broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.old_formats.old_logs import CONFIG, FORMATS, fill, questions
from tests.integration.old_formats.scenes import Answer, Scene
from tests.integration.old_formats.test_answers import decoded
from tests.support.apache_kafka import ApacheKafka, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.batches import a_batch
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.command_line import CommandLine
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

ottla = CommandLine("127.0.0.1:1")


class Filled:
    """A stopped broker with logs, its ZooKeeper, and its answers about the logs."""

    def __init__(self, broker: BrokerProcess, zookeeper: ZooKeeperServer, answers: dict[str, Answer]) -> None:
        self.broker = broker
        self.zookeeper = zookeeper
        self.answers = answers


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    directory = tmp_path_factory.mktemp("for-apache-kafka")
    config = {name.replace(".", "_"): value for name, value in CONFIG.items()}
    with (
        a_zookeeper(directory / "zookeeper") as zookeeper,
        a_broker(directory / "ottla", broker_id=0, zookeeper_connect=zookeeper.connect, **config) as broker,
    ):
        scene = Scene(broker.port)
        fill(scene)
        answers = questions(scene, broker.port, list(FORMATS))
        assert broker.stop() == 0
        yield Filled(broker, zookeeper, answers)


def test_the_dump_tool_prints_what_ours_prints(filled: Filled) -> None:
    segments = sorted(map(str, filled.broker.data.glob("old-*/*.log")))
    assert len(segments) >= len(FORMATS)
    dumped = run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(segments))
    assert (dumped.returncode, dumped.stderr) == (0, "")
    assert "isvalid: false" not in dumped.stdout
    ours = ottla("dump-log", "--deep-iteration", *segments).out
    assert dumped.stdout.splitlines() == ours.splitlines()
    for text in ("magic: 0", "magic: 1", "magic: 2", "compresscodec: gzip", "compresscodec: snappy", "compresscodec: lz4"):
        assert text in dumped.stdout


@pytest.mark.soak
def test_the_broker_serves_the_logs_as_the_one_that_wrote_them(filled: Filled, tmp_path: Path) -> None:
    config = {**CONFIG, "log.dirs": str(filled.broker.data)}
    with ApacheKafka(tmp_path, config=config, heap="256m", zookeeper=filled.zookeeper) as kafka:
        scene = Scene(kafka.port())
        scene.learn_ids(list(FORMATS))
        theirs = questions(scene, kafka.port(), list(FORMATS))
        wrong = [name for name, answer in filled.answers.items() if not is_same(name, answer, theirs[name])]
        assert not wrong, "\n".join(f"{name}: {filled.answers[name]} instead of {theirs[name]}"[:500] for name in wrong)
        assert [line for line in kafka.log_text().splitlines() if " ERROR " in line or (" WARN " in line and "kafka.log" in line)] == []
        for topic in FORMATS:
            end = theirs[f"{topic} offset of -1"]["offset"]
            assert scene.produce(topic, 9, bytes(a_batch(2))) == {"error": 0, "base_offset": end}
            assert [old.offset for old in decoded(bytes.fromhex(scene.fetch(topic, 11, end)["records"]))] == [end, end + 1]


def is_same(name: str, ours: Answer, theirs: Answer) -> bool:
    """Byte by byte; where snappy has to be written anew, record by record."""
    if "snappy" in name and "records" in theirs:
        return decoded(bytes.fromhex(ours["records"])) == decoded(bytes.fromhex(theirs["records"]))
    return ours == theirs
