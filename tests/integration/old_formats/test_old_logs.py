"""Log directories that Apache Kafka 3.9.1 wrote in formats 0 and 1: served, recovered, cleaned and dumped.

tests/golden/old-formats/logs.json has the answers of the broker that wrote them (`old_logs.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.conversion.old_logs import records_at
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iter_batches
from tests.integration.old_formats.old_logs import ANSWERS, CONFIG, LOGS, fill, questions
from tests.integration.old_formats.scenes import Answer, Scene
from tests.integration.old_formats.test_answers import decoded
from tests.support.adopted_directory import adopt
from tests.support.batches import a_batch
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.old_messages import Old

NOT_FOUND = {"error": 0, "offset": -1, "timestamp": -1}
TOPICS = sorted(path.name.removesuffix("-0") for path in LOGS.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def recorded() -> dict[str, Answer]:
    found: dict[str, Answer] = json.loads(ANSWERS.read_text())
    return found


def adopted(directory: Path) -> None:
    """Make the recorded logs the data of a broker that is not started yet."""
    adopt(LOGS, directory / "data", {})


def check(broker: BrokerProcess, recorded: dict[str, Answer], *, heeds_formats: bool = False) -> None:
    scene = Scene(broker.port)
    scene.learn_ids(TOPICS)
    answers = questions(scene, broker.port, TOPICS)
    assert answers.keys() == recorded.keys()
    wrong = []
    for name, answer in recorded.items():
        ours = answers[name]
        # The broker that wrote the logs refused by its message.format.version, which 3.9 ignores in its default setting.
        is_refused = answer["error"] == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        theirs = NOT_FOUND if is_refused and not heeds_formats else answer
        if "snappy" in name and "records" in theirs:
            assert decoded(bytes.fromhex(ours["records"])) == decoded(bytes.fromhex(theirs["records"])), name
        elif ours != theirs:
            wrong.append(f"{name}: {str(ours)[:200]} instead of {str(theirs)[:200]}")
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("old-logs")
    adopted(directory)
    with a_broker(directory, broker_id=0, log_retention_ms=-1) as started:
        yield started


def test_old_logs_are_served_as_apache_kafka_served_them(broker: BrokerProcess, recorded: dict[str, Answer]) -> None:
    check(broker, recorded)
    assert broker.stop() == 0
    broker.start()
    check(broker, recorded)


def test_old_logs_are_recovered_with_a_torn_tail_and_without_indexes(tmp_path: Path, recorded: dict[str, Answer]) -> None:
    adopted(tmp_path)
    for log in (tmp_path / "data").glob("*/*.log"):
        data = log.read_bytes()
        log.write_bytes(data + data[:20])
        for index in log.parent.glob("*index"):
            index.unlink()
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with a_broker(tmp_path, broker_id=0, log_retention_ms=-1) as started:
        check(started, recorded)
        for log in LOGS.glob("*/*.log"):
            assert (started.data / log.parent.name / log.name).stat().st_size == log.stat().st_size


def test_new_records_follow_old_ones(tmp_path: Path) -> None:
    adopted(tmp_path)
    with a_broker(tmp_path, broker_id=0, log_retention_ms=-1) as started:
        scene = Scene(started.port)
        scene.learn_ids(TOPICS)
        for topic in TOPICS:
            end = scene.produce(topic, 9, bytes(a_batch(2)))["base_offset"]
            found = decoded(bytes.fromhex(scene.fetch(topic, 11, end)["records"]))
            assert [old.offset for old in found] == [end, end + 1]
    shutil.rmtree(tmp_path / "data")


def test_a_topic_keeps_the_format_that_it_was_given_as_in_apache_kafka(tmp_path: Path, recorded: dict[str, Answer]) -> None:
    config = {name.replace(".", "_"): value for name, value in CONFIG.items()}
    with a_broker(tmp_path, broker_id=0, **config) as started:
        fill(Scene(started.port))
        check(started, recorded, heeds_formats=True)
        assert started.stop() == 0
        for theirs in LOGS.glob("*/*.log"):
            ours = started.data / theirs.parent.name / theirs.name
            assert contents(ours) == contents(theirs)
        started.start()
        check(started, recorded, heeds_formats=True)


def contents(log: Path) -> list[tuple[int, list[Old]]]:
    """The format and the records of each message, or batch, of a log."""
    data = log.read_bytes()
    return [
        (header.magic, [Old(record.offset, record.timestamp, record.key, record.value) for record in records_at(data, position, header)])
        for position, header in iter_batches(data)
    ]
