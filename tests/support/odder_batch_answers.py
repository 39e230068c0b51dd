"""Records what Apache Kafka 3.9.1 answers to the batches of `odder_kinds`, and to all odd batches in topics with several rules.

`OTTLA_JUDGE=1 python -m tests.support.odder_batch_answers` writes tests/recorded/odder-batches.jsonl. Each line has a batch, and its
answers in the order of `topics_for`. The batches that tests/golden/odd-batches.json has are not repeated there.
"""

import base64
import json
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.judged_broker import a_judged_broker
from tests.support.odd_batch_answers import ALL_TOPICS, MORE_TOPICS, Answer, as_json, ask, create_topics, recorded_batches
from tests.support.odder_batches import odder_kinds
from tests.support.wire_client import a_wire_client

RECORDING = Path(__file__).parents[1] / "recorded" / "odder-batches.jsonl"
PREFIX = "odder-"
_MOST_ERRORS = 3


class Recorded(NamedTuple):
    """A batch and what Apache Kafka answered, by topic, in the form of `in_short`."""

    name: str
    batch: bytes
    answers: dict[str, list[Any]]


def in_short(answer: Answer) -> list[Any]:
    """The answer as JSON. Of many errors of records only their number and a checksum are kept."""
    found = as_json(answer)
    if len(answer.errors) > _MOST_ERRORS:
        found[2] = f"{len(answer.errors)} errors, checksum {zlib.crc32(json.dumps(found[2]).encode()):08x}"
    return found


def topics_for(name: str) -> tuple[str, ...]:
    """The topics to which a batch is sent: those of which no other recording has the answer."""
    return tuple(MORE_TOPICS if name in recorded_batches() else ALL_TOPICS)


def recorded() -> Iterator[Recorded]:
    """All batches, in the order in which they were sent to each topic."""
    others = recorded_batches()
    for line in RECORDING.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        name = found["name"]
        batch = base64.b64decode(others[name]["base64"] if name in others else found["base64"])
        yield Recorded(name, batch, dict(zip(topics_for(name), found["answers"], strict=True)))


def main(path: str = str(RECORDING)) -> None:
    """Record."""
    others = {name: base64.b64decode(known["base64"]) for name, known in recorded_batches().items()}
    fresh = odder_kinds()
    assert not fresh.keys() & others.keys()
    lines = []
    with tempfile.TemporaryDirectory() as made, a_judged_broker(Path(made)) as broker:
        create_topics(broker.bootstrap, PREFIX)
        with a_wire_client(broker.port) as client:
            for name, batch in {**others, **fresh}.items():
                answers = [in_short(ask(client, PREFIX + topic, batch)[0]) for topic in topics_for(name)]
                known = {"base64": base64.b64encode(batch).decode()} if name in fresh else {}
                lines.append(json.dumps({"name": name, **known, "answers": answers}))
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
