"""New states of a share group wait for the deletions of its former ones, and deletions for the states that are begun."""

from __future__ import annotations

from typing import Any

from ottla.coordination.shares.state.coordinator import Reply, StateResult
from ottla.coordination.shares.state_of_groups import StateOfGroups
from ottla.coordination.shares.state_questions import DeleteState, InitializeState, Question
from ottla.protocol.errors import ErrorCode
from tests.support.pauses import turns_by_hand
from tests.support.share_bench import TOPIC_ID

PARTITIONS = {TOPIC_ID: ("t", frozenset({0}))}


class Access:
    """Keeps the questions; the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[Question, Reply]] = []

    def ask(self, question: Question, reply: Reply) -> None:
        self.asked.append((question, reply))

    def kinds(self) -> list[tuple[type[Question], str]]:
        """The kinds and groups of the questions without an answer."""
        return [(type(question), question.key.group_id) for question, _ in self.asked]

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest question."""
        self.asked.pop(0)[1](StateResult(error))


def test_an_initialization_waits_for_the_deletions_of_its_group_whatever_they_lead_to() -> None:
    access: Any = Access()
    state, done = StateOfGroups(access), list[object]()
    state.forget("g", [(TOPIC_ID, 0)], done.append)
    state.forget("g", [(TOPIC_ID, 0)], done.append)
    state.initialize("g", PARTITIONS, 2, frozenset(), done.append)
    state.move("g", {(TOPIC_ID, 0): 7}, 2, done.append)
    state.initialize("h", PARTITIONS, 2, frozenset(), done.append)
    assert access.kinds() == [(DeleteState, "g"), (DeleteState, "g"), (InitializeState, "h")]
    access.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert len(access.asked) == 2
    access.answer()
    assert access.kinds() == [(InitializeState, "h"), (InitializeState, "g"), (InitializeState, "g")]
    for _ in range(3):
        access.answer()
    place = TOPIC_ID, 0
    assert done == [{place: ErrorCode.COORDINATOR_NOT_AVAILABLE}, {place: ErrorCode.NONE}, True, True, {place: ErrorCode.NONE}]


def test_a_deletion_waits_for_the_initializations_of_its_group_and_later_ones_for_it() -> None:
    access: Any = Access()
    state, done = StateOfGroups(access), list[object]()
    state.initialize("g", PARTITIONS, 2, frozenset(), done.append)
    state.move("g", {(TOPIC_ID, 0): 7}, 3, done.append)
    state.forget("g", [(TOPIC_ID, 0)], done.append)
    state.initialize("g", PARTITIONS, 4, frozenset(), done.append)
    state.forget("h", [], done.append)
    assert access.kinds() == [(InitializeState, "g"), (InitializeState, "g")]
    access.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    access.answer()
    assert access.kinds() == [(DeleteState, "g")]
    access.answer()
    assert access.kinds() == [(InitializeState, "g")]
    access.answer()
    place = TOPIC_ID, 0
    assert done == [{}, False, {place: ErrorCode.NONE}, {place: ErrorCode.NONE}, True]


def test_the_questions_about_many_partitions_are_asked_with_pauses() -> None:
    access: Any = Access()
    state, done = StateOfGroups(access), list[object]()
    places = [(TOPIC_ID, index) for index in range(3)]
    with turns_by_hand() as loop:
        state.forget("g", places, done.append)
        assert len(access.asked) == 1
        while loop.turn():
            pass
    for _ in places:
        access.answer()
    assert done == [dict.fromkeys(places, ErrorCode.NONE)]
