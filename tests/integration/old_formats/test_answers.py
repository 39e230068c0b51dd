"""The answers to old clients are those of Apache Kafka 3.9.1, byte by byte.

tests/golden/old-formats/answers.json was recorded by `OTTLA_JUDGE=1 python -m tests.integration.old_formats.test_answers`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from ottla.protocol.records.batch import CURRENT_MAGIC, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, iter_batches
from ottla.protocol.records.reader import iter_records
from tests.integration.old_formats.scenes import Answer, Scene
from tests.support.judged_broker import a_judged_broker, needs_its_broker
from tests.support.old_messages import Old, read

pytestmark = needs_its_broker

ANSWERS = Path(__file__).parents[2] / "golden" / "old-formats" / "answers.json"


def played(directory: Path) -> dict[str, Answer]:
    with a_judged_broker(directory, message_max_bytes=1_048_588) as broker:
        return Scene(broker.port).play()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    return played(tmp_path_factory.mktemp("old-formats"))


def test_every_answer_is_that_of_apache_kafka(answers: dict[str, Answer]) -> None:
    recorded: dict[str, Answer] = json.loads(ANSWERS.read_text())
    assert answers.keys() == recorded.keys()
    for mine, theirs in ((answers[name], answer) for name, answer in recorded.items() if "snappy" in name or "new fetch" in name):
        if "records" in theirs and mine["records"] != theirs["records"]:
            # Another release of the same compressor: the bytes differ, and what follows an answer of the same size.
            assert decoded(bytes.fromhex(mine["records"])) == decoded(bytes.fromhex(theirs["records"]))
            mine["records"] = theirs["records"]
    wrong = {name: (answers[name], answer) for name, answer in recorded.items() if answers[name] != answer}
    assert not wrong, "\n".join(f"{name}: {str(ours)[:300]} instead of {str(theirs)[:300]}" for name, (ours, theirs) in wrong.items())


def decoded(records: bytes) -> list[Old]:
    """The records of messages or batches."""
    if len(records) > LOG_OVERHEAD and records[HEADER_SIZE_UP_TO_MAGIC - 1] < CURRENT_MAGIC:
        return read(records)
    return [
        Old(record.offset, record.timestamp, record.key, record.value)
        for position, header in iter_batches(records)
        for record in iter_records(records, position, header)
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        found = played(Path(made))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in found.items())
    Path(sys.argv[1] if len(sys.argv) > 1 else ANSWERS).write_text(f"{{\n{lines}\n}}\n")
