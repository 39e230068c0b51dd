"""Sends every request of a producer in every state of its transaction with every kind of epoch, and compares with Apache Kafka's answers.

ANSWERS was recorded from Apache Kafka 3.9.1 by `OTTLA_JUDGE=1 python -m tests.integration.transactions.test_states_and_epochs`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol import features
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.judged_broker import JUDGED_BY_APACHE, JudgedBroker, a_judged_broker, needs_its_broker
from tests.support.transaction_requests import Described, Owner, Scene

pytestmark = needs_its_broker

TOPIC = "matrix"
GROUP = "matrix"
SHORT_MS = 300

ANSWERS = """
state     speaker  commit1 commit abort1 abort add1 add  add5 verify0 verify1 offsets1 offsets group2 group write0 write1 init3   init
unknown   owner    49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     0:E0    0:E0
unknown   older    49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     0:E0    0:E0
unknown   newer    49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     0:E0    0:E0
unknown   stranger 49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     0:E0    0:E0
empty     owner    48      48     48     48    0:O1 0:O1 0:O1 120     120     0:O1     0:O1    48     120   120    48     0:E0+1  0:E0+1
empty     older    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47      90
empty     newer    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47      90
empty     stranger 49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     47      90
ongoing   owner    0:C0    0:C0   0:A0   0:A0  0:O2 0:O2 0:O2 0       120     0:O2     0:O2    48     120   0      48     47:A0+1 90:A0+1
ongoing   older    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47:A0+1 90:A0+1
ongoing   newer    47      90     47     90    47   90   90   90      90      47       90      47     47    45     47     0:E0+2  0:E0+2
ongoing   stranger 49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     47      90
committed owner    0       0      48     48    0:O1 0:O1 0:O1 120     120     0:O1     0:O1    48     120   120    48     0:E0+1  0:E0+1
committed older    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47      90
committed newer    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47      90
committed stranger 49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     47      90
aborted   owner    48      48     0      0     0:O1 0:O1 0:O1 120     120     0:O1     0:O1    48     120   120    48     0:E0+1  0:E0+1
aborted   older    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47      90
aborted   newer    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47      90
aborted   stranger 49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     47      90
timed-out owner    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47      90
timed-out older    47      90     47     90    47   90   90   90      90      47       90      47     47    47     47     47      90
timed-out newer    48      48     0      0     0:O1 0:O1 0:O1 120     120     0:O1     0:O1    48     120   120    48     0:E0+1  0:E0+1
timed-out stranger 49      49     49     49    49   49   49   49      49      49       49      49     49    49     49     47      90
"""
"""State and speaker, and by request the error code. Where the transaction changed: state, partitions, new epochs."""

OF_KAFKA_4 = {
    ("ongoing", "owner"): {"init3": "0:E0+1", "init": "0:E0+1"},
    ("timed-out", "owner"): {"init3": "0:E0", "init": "0:E0"},
}
"""What Apache Kafka 4.4 answers otherwise at transaction.version 2, which a cluster of Ottla's own has."""

REQUESTS: dict[str, Callable[[Scene, Owner], int]] = {
    "commit1": lambda scene, owner: scene.end(owner, commit=True, version=1),
    "commit": lambda scene, owner: scene.end(owner, commit=True),
    "abort1": lambda scene, owner: scene.end(owner, commit=False, version=1),
    "abort": lambda scene, owner: scene.end(owner, commit=False),
    "add1": lambda scene, owner: scene.add(owner, TOPIC, 1, version=1)[0],
    "add": lambda scene, owner: scene.add(owner, TOPIC, 1)[0],
    "add5": lambda scene, owner: scene.add(owner, TOPIC, 1, version=5)[0],
    "verify0": lambda scene, owner: scene.add(owner, TOPIC, 0, version=4, verify_only=True)[0],
    "verify1": lambda scene, owner: scene.add(owner, TOPIC, 1, version=5, verify_only=True)[0],
    "offsets1": lambda scene, owner: scene.add_offsets(owner, GROUP, version=1),
    "offsets": lambda scene, owner: scene.add_offsets(owner, GROUP),
    "group2": lambda scene, owner: scene.commit_offset(owner, GROUP, TOPIC, version=2),
    "group": lambda scene, owner: scene.commit_offset(owner, GROUP, TOPIC),
    "write0": lambda scene, owner: scene.write(owner, TOPIC, 0, sequence=1),
    "write1": lambda scene, owner: scene.write(owner, TOPIC, 1, version=10),
    "init3": lambda scene, owner: scene.init(owner.transactional_id, owner=owner, version=3).error_code,
    "init": lambda scene, owner: scene.init(owner.transactional_id, owner=owner).error_code,
}
"""Partition 0 is in the open transaction, partition 1 is not. A number is the version; without one it is the newest."""

SPEAKERS: dict[str, Callable[[Owner], Owner]] = {
    "owner": lambda owner: owner,
    "older": Owner.older,
    "newer": Owner.newer,
    "stranger": Owner.stranger,
}

LETTERS = {"Empty": "E", "Ongoing": "O", "CompleteCommit": "C", "CompleteAbort": "A"}

STATES = ("unknown", "empty", "ongoing", "committed", "aborted", "timed-out")


def prepare(scene: Scene, state: str, transactional_id: str) -> Owner:
    """The owner of the id, with a transaction in that state or on its way there; of epoch 1, so that there is an older one."""
    if state == "unknown":
        return Owner(transactional_id, 10_000_000, 1)
    scene.owner(transactional_id)
    owner = scene.owner(transactional_id, SHORT_MS if state == "timed-out" else 60_000)
    if state != "empty":
        assert scene.add(owner, TOPIC, 0) == [0]
        assert scene.write(owner, TOPIC, 0) == 0
    if state in ("committed", "aborted"):
        assert scene.end(owner, commit=state == "committed") == 0
    return owner


def wait(scene: Scene, state: str, owner: Owner) -> None:
    """Until the state is there."""
    if state in ("committed", "aborted"):
        scene.wait_until_completed(owner.transactional_id)
    elif state == "timed-out":
        eventually(lambda: is_in(scene, owner, "CompleteAbort"), what="the transaction is aborted at its timeout")


def is_in(scene: Scene, owner: Owner, state: str) -> bool:
    found = scene.described(owner.transactional_id)
    return found is not None and found.state == state


def answers(broker: JudgedBroker | InProcessBroker, states: Iterable[str] = STATES) -> Iterator[tuple[str, str, str, str]]:
    """State, speaker, request, and the answer as in ANSWERS. Nothing is left open."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
    cases = [(state, speaker, request) for state in states for speaker in SPEAKERS for request in REQUESTS]
    with Scene(broker.port) as scene:
        scene.find_coordinators(GROUP)
        owners = {case: prepare(scene, case[0], "-".join(case)) for case in cases}
        for case, owner in owners.items():
            wait(scene, case[0], owner)
            yield (*case, answer(scene, case[2], SPEAKERS[case[1]](owner)))
            finish(scene, owner)
        for partition in range(2):
            eventually(lambda partition=partition: scene.holds_nothing_back(TOPIC, partition), what="nothing is held back")


def answer(scene: Scene, request: str, speaker: Owner) -> str:
    """The code, and what became of the transaction if anything did."""
    before = scene.described(speaker.transactional_id)
    code = int(REQUESTS[request](scene, speaker))
    if not code and request.startswith(("commit", "abort")):
        scene.wait_until_completed(speaker.transactional_id)
    after = scene.described(speaker.transactional_id)
    if after == before:
        return str(code)
    epochs = (after.epoch if after else 0) - (before.epoch if before else 0)
    return f"{code}:{told(after)}" + (f"{epochs:+d}" if epochs else "")


def told(described: Described | None) -> str:
    """Its state and how many partitions it has."""
    return "None" if described is None else f"{LETTERS[described.state]}{len(described.partitions)}"


def finish(scene: Scene, owner: Owner) -> None:
    """Whatever is open is aborted by a new owner; an open transaction of a partition that the coordinator knows not of, by a marker."""
    scene.owner(owner.transactional_id)
    for partition in range(2):
        if owner.producer_id in scene.open_transactions(TOPIC, partition):
            scene.wait_until_completed(owner.transactional_id)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, str]]:
    """The answers by state and speaker, by request."""
    by_row: dict[tuple[str, str], dict[str, str]] = {}
    with a_judged_broker(tmp_path_factory.mktemp("broker")) as broker:
        for state, speaker, request, text in answers(broker):
            by_row.setdefault((state, speaker), {})[request] = text
    return by_row


def recorded() -> dict[tuple[str, str], dict[str, str]]:
    rows = [line.split() for line in ANSWERS.strip().splitlines()]
    return {(state, speaker): dict(zip(rows[0][2:], texts, strict=True)) for state, speaker, *texts in rows[1:]}


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("state", STATES)
def test_requests_are_answered_as_apache_kafka_answers_them(found: dict[tuple[str, str], dict[str, str]], state: str, speaker: str) -> None:
    of_kafka_4 = {} if JUDGED_BY_APACHE else OF_KAFKA_4.get((state, speaker), {})
    assert found[state, speaker] == {**recorded()[state, speaker], **of_kafka_4}


@pytest.mark.skipif(JUDGED_BY_APACHE, reason="a broker in the process of the test is Ottla's")
def test_without_the_feature_the_answers_are_those_of_3_9(tmp_path: Path) -> None:
    settings: dict[str, int] = {
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": 200,
        **dict.fromkeys(("offsets_topic_num_partitions", "transaction_state_log_num_partitions"), 4),
        **dict.fromkeys(("offsets_topic_replication_factor", "transaction_state_log_replication_factor"), 1),
        "transaction_state_log_min_isr": 1,
    }
    with patch.dict(features.IMPLEMENTED, clear=True), a_broker_in_process(tmp_path, **settings) as broker:
        for state, speaker, request, text in answers(broker, [state for state, _ in OF_KAFKA_4]):
            assert (state, speaker, request, text) == (state, speaker, request, recorded()[state, speaker][request])


def main() -> None:
    """Print the table."""
    lines = [["state", "speaker", *REQUESTS]]
    with tempfile.TemporaryDirectory() as directory, a_judged_broker(Path(directory)) as broker:
        rows: dict[tuple[str, str], list[str]] = {}
        for state, speaker, request, text in answers(broker):
            print(state, speaker, request, text, file=sys.stderr)
            rows.setdefault((state, speaker), []).append(text)
    lines += [[*key, *texts] for key, texts in rows.items()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
