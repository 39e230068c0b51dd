"""Wrong batches, each with a right checksum, get the answers that Apache Kafka 3.9.1 gave to the same bytes."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import AiokafkaClient, ConfluentClient, KafkaPythonClient
from tests.support.command_line import CommandLine
from tests.support.go_programs import compiled_program, needs_go
from tests.support.judged_broker import JUDGED_BY_APACHE, JudgedBroker, a_judged_broker, needs_its_broker, only_ottla
from tests.support.odd_batch_answers import (
    ALL_TOPICS,
    KEPT,
    TOPICS,
    Answer,
    ask,
    create_topics,
    explained,
    from_json,
    recorded_batches,
    stored,
)
from tests.support.odd_batches import a_body, framed
from tests.support.odder_batch_answers import PREFIX, in_short, recorded
from tests.support.wire_client import a_wire_client

pytestmark = needs_its_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedBroker]:
    with a_judged_broker(tmp_path_factory.mktemp("odd")) as running:
        create_topics(running.bootstrap, "")
        create_topics(running.bootstrap, PREFIX)
        yield running


@pytest.mark.parametrize("topic", TOPICS)
def test_odd_batches_get_the_recorded_answers(broker: JudgedBroker, topic: str) -> None:
    wrong: list[tuple[str, Answer, Answer]] = []
    stricter = 0
    offsets: set[int] = set()
    with a_wire_client(broker.port) as client:
        for name, known in recorded_batches().items():
            batch = base64.b64decode(known["base64"])
            answer, offset = ask(client, topic, batch)
            expected = from_json(known[topic])
            if not answer.code:
                offsets.add(offset)
            if answer == expected:
                continue
            if not JUDGED_BY_APACHE and explained(batch, topic, expected, answer):
                stricter += 1
            else:
                wrong.append((name, expected, answer))
        assert not wrong
        assert stricter < 70, "most answers are those of Apache Kafka"
        assert stored(client, topic).keys() == offsets, "of the refused batches nothing is stored"


@pytest.mark.parametrize("topic", ALL_TOPICS)
def test_odder_batches_get_the_recorded_answers(broker: JudgedBroker, topic: str) -> None:
    wrong = []
    stricter = 0
    with a_wire_client(broker.port) as client:
        for known in recorded():
            expected = known.answers.get(topic)
            if expected is None:
                continue
            answer = ask(client, PREFIX + topic, known.batch)[0]
            if in_short(answer) == expected:
                continue
            if not JUDGED_BY_APACHE and explained(known.batch, topic, Answer(expected[0], None, ()), answer):
                stricter += 1
            else:
                wrong.append((known.name, expected, in_short(answer)))
    assert not wrong
    assert stricter < 140, "most answers are those of Apache Kafka"


def write_between_refused(broker: JudgedBroker, topic: str) -> int:
    """Send all batches that are refused, and a good one after every twenty of them. Returns the number of good records."""
    ConfluentClient(broker.bootstrap).create_topic(topic, 1, KEPT)
    good = framed(a_body(3), count=3)
    refused = 0
    with a_wire_client(broker.port) as client:
        for known in recorded_batches().values():
            batch = base64.b64decode(known["base64"])
            if not from_json(known["plain"]).code:
                continue
            assert ask(client, topic, batch)[0].code
            refused += 1
            if refused % 20 == 0:
                assert not ask(client, topic, good)[0].code
    expected = 3 * (refused // 20)
    assert expected > 60
    return expected


@only_ottla
def test_consumers_read_past_every_refused_batch(broker: JudgedBroker) -> None:
    expected = write_between_refused(broker, "readable")
    for reader in (ConfluentClient(broker.bootstrap), KafkaPythonClient(broker.bootstrap), AiokafkaClient(broker.bootstrap)):
        assert len(reader.consume("readable")) == expected
    assert len(CommandLine(broker.bootstrap)("consume", "-e", "readable").lines) == expected


@only_ottla
@needs_go
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_franz_go_reads_past_every_refused_batch(broker: JudgedBroker, tmp_path: Path) -> None:
    expected = write_between_refused(broker, "readable-in-go")
    program = compiled_program("reader", tmp_path)
    command = [str(program), broker.bootstrap, "readable-in-go", str(expected)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [str(offset) for offset in range(expected)]), done.stderr
