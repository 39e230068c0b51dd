"""Every API, asked with no right, with exactly the rights that it needs, and with all but one: answers and logs of Apache Kafka 3.9.1."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.broker.handlers.table import IMPLEMENTED
from ottla.broker.network import offenders
from ottla.broker.request.listed_apis import UNLISTED_IN_3_9
from ottla.broker.security.audit_log import logger
from ottla.protocol import features
from ottla.protocol.api_keys import ApiKey
from tests.support.in_process_broker import a_broker_in_process
from tests.support.record_rights import RECORDING
from tests.support.request_comparison import unequal
from tests.support.rights_grid import CASES, WITHOUT_RIGHTS, Case, Rights
from tests.support.rights_player import CLOSED, LISTENER, RightsPlayer, line_of, name_of, properties

REFUSALS = frozenset({29, 30, 31, 53, 65})
"""The codes of authorization: of topics, groups, the cluster, transactional ids and delegation tokens."""
OF_JAVA = {"Java's text of the request": "Cluster authorization failed."}
QUESTIONS = [(case, rights) for case in CASES for rights in case.sets_of_rights()]
ONLY_OURS = frozenset({ApiKey.DESCRIBE_TOPIC_PARTITIONS})
"""APIs for which Apache Kafka closes the connection in ZooKeeper mode."""
RECORDED: dict[str, dict[str, Any]] = {
    line["question"]: line for line in map(json.loads, RECORDING.read_text(encoding="utf-8").splitlines())
}
REFUSED_FIRST = "INCREMENTAL_ALTER_CONFIGS v1 of what a broker could not become with no right"
"""Apache Kafka names the value that the broker could not have. Ottla checks the rights first (docs/differences.md)."""


def recorded(question: str) -> dict[str, Any]:
    """The line of Apache Kafka; for REFUSED_FIRST what it has for the same resource with a possible value."""
    line = RECORDED[question]
    if question != REFUSED_FIRST:
        return line
    possible = RECORDED["INCREMENTAL_ALTER_CONFIGS v1 with no right"]
    (of_broker,) = (each for each in possible["answer"]["responses"] if each["resource_type"] == 4)
    return {**line, "answer": {**line["answer"], "responses": [of_broker]}, "log": possible["log"][:1]}


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def taken(self) -> list[str]:
        found, self.messages = self.messages, []
        return found


@contextmanager
def without_features(patches: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster whose metadata are made inside has no features, as that of Apache Kafka 3.9."""
    patches.setattr(features, "IMPLEMENTED", {})
    yield


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Our lines, by question."""
    lines, level = Lines(), logger.level
    logger.addHandler(lines)
    with (
        pytest.MonkeyPatch.context() as patches,
        without_features(patches),
        a_broker_in_process(tmp_path_factory.mktemp("rights"), **properties(0, 0)) as broker,
    ):
        patches.setattr(offenders, "LINES_PER_WINDOW", 1_000_000)
        (address,) = (each for each in broker.broker.addresses if each.startswith(LISTENER))
        player = RightsPlayer(int(address.rpartition(":")[2]), lines.taken)
        played = (json.loads(json.dumps(line_of(each))) for each in player.play())
        yield {each["question"]: each for each in played}
    logger.removeHandler(lines)
    logger.setLevel(level)


def in_our_words(answer: Any) -> Any:
    """Apache Kafka's answer, where `docs/differences.md` has another text."""
    if isinstance(answer, dict):
        return {name: in_our_words(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [in_our_words(value) for value in answer]
    return OF_JAVA.get(answer, answer) if isinstance(answer, str) else answer


def both(answered: dict[str, Any], case: Case, rights: Rights) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our line and that of Apache Kafka."""
    question = name_of(case, rights)
    return answered[question], recorded(question)


def error_codes(answer: Any, name: str = "") -> Iterator[int]:
    if isinstance(answer, dict):
        for field, value in answer.items():
            yield from error_codes(value, field)
    elif isinstance(answer, list):
        for value in answer:
            yield from error_codes(value)
    elif name.endswith("error_code"):
        yield answer


def test_every_api_is_in_the_grid() -> None:
    assert {case.key for case in CASES} | WITHOUT_RIGHTS == IMPLEMENTED | UNLISTED_IN_3_9


def test_the_recording_has_every_question_of_the_grid() -> None:
    assert sorted(RECORDED) == sorted(name_of(*each) for each in QUESTIONS)


@pytest.mark.parametrize(("case", "rights"), QUESTIONS, ids=[name_of(*each) for each in QUESTIONS])
def test_the_answer_is_that_of_apache_kafka(answered: dict[str, Any], case: Case, rights: Rights) -> None:
    ours, theirs = (line["answer"] for line in both(answered, case, rights))
    if case.key in ONLY_OURS:
        assert (theirs == CLOSED, ours == CLOSED) == (True, False)
        return
    differences = list(unequal(ours, in_our_words(theirs)))
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize(("case", "rights"), QUESTIONS, ids=[name_of(*each) for each in QUESTIONS])
def test_the_audit_log_is_that_of_apache_kafka(answered: dict[str, Any], case: Case, rights: Rights) -> None:
    ours, theirs = (line["log"] for line in both(answered, case, rights))
    if case.key not in ONLY_OURS:
        assert ours == theirs


@pytest.mark.parametrize(
    ("case", "rights"), [(case, rights) for case in CASES for rights in case.suffices], ids=lambda each: getattr(each, "name", "")
)
def test_nothing_is_refused_to_a_client_with_the_rights_that_a_request_needs(answered: dict[str, Any], case: Case, rights: Rights) -> None:
    assert REFUSALS.isdisjoint(error_codes(answered[name_of(case, rights)]["answer"]))


@pytest.mark.parametrize("case", CASES, ids=lambda each: each.name)
def test_without_one_of_the_rights_the_answer_is_another(answered: dict[str, Any], case: Case) -> None:
    for rights in case.suffices:
        for lacking in rights:
            less = tuple(each for each in rights if each != lacking)
            assert answered[name_of(case, less)]["answer"] != answered[name_of(case, rights)]["answer"], lacking
