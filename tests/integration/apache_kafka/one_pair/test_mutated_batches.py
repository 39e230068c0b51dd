"""Good batches after random changes are judged, and stored, by Ottla as by Apache Kafka."""

import os
import random

import pytest

from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.java_pair import Pair
from tests.support.odd_batch_answers import RECOMPRESSED, TOPICS, Answer, ask, create_topics, explained, stored
from tests.support.odd_batches import mutated
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
            topic = chance.choice((*TOPICS, "plain", "plain"))
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
        found = {topic: (stored(ours, PREFIX + topic), stored(theirs, PREFIX + topic)) for topic in TOPICS}
    for topic, offset, other in accepted:
        assert _comparable(topic, found[topic][0][offset]).hex() == _comparable(topic, found[topic][1][other]).hex(), topic


def _comparable(topic: str, batch: bytes) -> bytes:
    """The bytes, from the magic on, that do not depend on a clock or a library: without the checksum, and without bytes compressed anew."""
    if topic == "log-append-time":
        return batch[5:19] + batch[27:]
    return batch[5:45] if topic in RECOMPRESSED else batch[5:]
