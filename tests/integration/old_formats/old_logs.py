"""Records log directories in formats 0 and 1 from Apache Kafka 3.9.1, its answers about them, and what its DumpLogSegments prints of them.

`python -m tests.integration.old_formats.old_logs` writes tests/golden/old-formats/logs, logs.json and dump.txt. The broker has
`inter.broker.protocol.version` 2.8, the last with which 3.9 heeds `message.format.version`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.integration.old_formats.scenes import FETCH_VERSIONS, TIME, Answer, Scene, produced_sets
from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.tools import run_tool
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.golden_replay import exchange

GOLDEN = Path(__file__).parents[2] / "golden" / "old-formats"
LOGS = GOLDEN / "logs"
ANSWERS = GOLDEN / "logs.json"
DUMP = GOLDEN / "dump.txt"
MIXED = "old-mixed"
TIMES = (0, TIME - 1, TIME, TIME + 1, TIME + 5000, TIME + 20_000, -1, -2, -3)
FORMATS = {topic: "0.9.0" if topic.startswith("old-0") else "0.10.2" for topic in produced_sets()} | {MIXED: "0.10.2"}
CONFIG = {"inter.broker.protocol.version": "2.8", "log.retention.ms": "-1", "log.index.size.max.bytes": "1024"}


def list_offsets(port: int, topic: str, timestamp: int) -> Answer:
    """The first offset with a timestamp of at least this; -1, -2 and -3 ask for the end, the beginning, and the largest timestamp."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    answer = exchange(port, request, ApiKey.LIST_OFFSETS, 7).topics[0].partitions[0]
    return {"error": answer.error_code, "offset": answer.offset, "timestamp": answer.timestamp}


def questions(scene: Scene, port: int, topics: list[str]) -> dict[str, Answer]:
    """Answers about the logs: what they have from which offset on, and when."""
    answers: dict[str, Answer] = {}
    for topic in topics:
        for timestamp in TIMES:
            answers[f"{topic} offset of {timestamp}"] = list_offsets(port, topic, timestamp)
        end = answers[f"{topic} offset of -1"]["offset"]
        for version in FETCH_VERSIONS:
            for offset in (0, 1, end // 2, end - 1):
                answers[f"{topic} fetch {version} from {offset}"] = scene.fetch(topic, version, offset)
    return answers


def fill(scene: Scene) -> None:
    """Create the topics with their formats, and produce to them. One of them gets format 2 in the end."""
    scene.create({topic: {"message.format.version": version} for topic, version in FORMATS.items()})
    for topic, sets in produced_sets().items():
        for version, records in sets:
            assert not scene.produce(topic, version, records)["error"]
    for version, records in produced_sets()["old-1-none"] + produced_sets()["old-1-gzip"]:
        scene.produce(MIXED, version, records)
    scene.alter(MIXED, {"message.format.version": "2.8"})
    # Apache Kafka answers before the change is in force. Format 1 refuses idempotent producers.
    new = bytes(a_batch(3, producer_id=1))
    eventually(lambda: not scene.produce(MIXED, 9, new)["error"], what="format 2 is in force")


def record() -> None:
    """Record logs and answers."""
    with tempfile.TemporaryDirectory() as made, ApacheKafka(Path(made), config=CONFIG, heap="256m") as apache:
        port = apache.port()
        scene = Scene(port)
        fill(scene)
        answers = questions(scene, port, list(FORMATS))
        apache.stop_broker(0)
        shutil.rmtree(LOGS, ignore_errors=True)
        for topic in FORMATS:
            shutil.copytree(apache.data_directory() / f"{topic}-0", LOGS / f"{topic}-0")
        shutil.copy(apache.data_directory() / "meta.properties", LOGS)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    ANSWERS.write_text(f"{{\n{lines}\n}}\n")
    dump()


def dump() -> None:
    """Record what DumpLogSegments prints of the recorded logs."""
    segments = ",".join(map(str, sorted(LOGS.glob("*/*.log"))))
    printed = run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", segments)
    assert printed.returncode == 0, printed
    DUMP.write_text(printed.stdout.replace(f"{LOGS}/", ""))


if __name__ == "__main__":
    record()
