"""Good batches after random changes are judged, and stored, by Ottla as by Apache Kafka."""

import base64
import os
import random

import pytest

from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.apache_kafka.tools import run_tool
from tests.support.clients import ConfluentClient
from tests.support.java_pair import CONSUMER, Pair
from tests.support.odd_batch_answers import (
    ALL_TOPICS,
    KEPT,
    Answer,
    ask,
    create_topics,
    explained,
    from_json,
    recorded_batches,
    stored,
)
from tests.support.odd_batches import a_body, framed, mutated
from tests.support.wire_client import a_wire_client

pytestmark = needs_apache_kafka

BATCHES = 10_000 if "OTTLA_JUDGE" in os.environ else 300
SEED = int(os.environ.get("OTTLA_SEED", "3"))
PREFIX = "mutated-"


@pytest.mark.timeout(1800)
def test_mutated_batches_are_judged_as_by_apache_kafka(pair: Pair) -> None:
    create_topics(pair.ours.bootstrap, PREFIX)
    create_topics(pair.theirs.bootstrap, PREFIX)
    chance = random.Random(SEED)
    wrong: list[tuple[int, str, str, Answer, Answer]] = []
    stricter = 0
    accepted: list[tuple[str, int, int]] = []
    with a_wire_client(pair.ours.port) as ours, a_wire_client(pair.theirs.port()) as theirs:
        for number in range(BATCHES):
            batch = mutated(chance)
            topic = chance.choice((*ALL_TOPICS, *["plain"] * 6))
            answer, offset = ask(ours, PREFIX + topic, batch)
            expected, other = ask(theirs, PREFIX + topic, batch)
            if not answer.code and not expected.code:
                accepted.append((topic, offset, other))
            if answer == expected:
                continue
            if explained(batch, topic, expected, answer):
                stricter += 1
            else:
                wrong.append((number, topic, batch.hex(), expected, answer))
        assert not wrong, f"seed {SEED}"
        assert stricter < BATCHES * 0.1, "nearly all answers are those of Apache Kafka"
        assert len(accepted) > BATCHES // 10
        found = {topic: (stored(ours, PREFIX + topic), stored(theirs, PREFIX + topic)) for topic in ALL_TOPICS}
    for topic, offset, other in accepted:
        assert _comparable(topic, found[topic][0][offset]).hex() == _comparable(topic, found[topic][1][other]).hex(), topic


def _comparable(topic: str, batch: bytes) -> bytes:
    """The bytes, from the magic on, that do not depend on a clock or a library: without the checksum, and without bytes compressed anew."""
    config = ALL_TOPICS[topic]
    end = 45 if "compression.type" in config else len(batch)
    if "message.timestamp.type" in config:
        return batch[5:19] + batch[27:end]
    return batch[5:end]


def test_javas_consumer_reads_past_every_refused_batch(pair: Pair) -> None:
    topic = "past-refused"
    ConfluentClient(pair.ours.bootstrap).create_topic(topic, 1, KEPT)
    good = framed(a_body(2), count=2)
    written = 0
    with a_wire_client(pair.ours.port) as client:
        for number, known in enumerate(recorded_batches().values()):
            if from_json(known["plain"]).code:
                assert ask(client, topic, base64.b64decode(known["base64"]))[0].code
            if number % 40 == 0:
                assert not ask(client, topic, good)[0].code
                written += 2
    options = ("--bootstrap-server", pair.ours.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", str(written))
    read = run_tool(CONSUMER, *options, "--timeout-ms", "60000")
    assert read.stdout.split() == ["v"] * written
