"""Initializes and deletes the state of all partitions of a share group, for the coordinator of the group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ottla.coordination.shares.state.coordinator import StateResult
from ottla.coordination.shares.state.stored_state import NO_OFFSET, SharePartitionKey
from ottla.coordination.shares.state_access import StateAccess
from ottla.coordination.shares.state_questions import DeleteState, InitializeState, Question
from ottla.pauses import begin, pause
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Partitions = Mapping[bytes, tuple[str, frozenset[int]]]
"""By topic id, the name of the topic, and partitions."""

Place = tuple[bytes, int]
"""Topic id and index of a partition."""

Questions = Mapping[Place, Question]


class StateOfGroups:
    """See the module. Initializations and deletions of a group wait for each other: a late deletion would take a new state. A late
    initialization would leave one, with an epoch that a new group of that name does not reach."""

    __slots__ = ("_access", "_work")

    def __init__(self, access: StateAccess) -> None:
        self._access = access
        self._work: dict[str, _Work] = {}
        """By group."""

    def initialize(self, group_id: str, partitions: Partitions, epoch: int, grown: frozenset[bytes], then: Callable[[bool], None]) -> None:
        """Initialize the partitions, and call `then` with whether all of them are. Those of topics in `grown` begin at the first record."""
        offsets = {
            (topic_id, index): 0 if topic_id in grown else NO_OFFSET
            for topic_id, (_, indexes) in partitions.items()
            for index in sorted(indexes)
        }

        def on_results(results: dict[Place, ErrorCode]) -> None:
            errors = {place: error for place, error in results.items() if error}
            for (topic_id, index), error in errors.items():
                name = partitions[topic_id][0]
                logger.warning("group %s: partition %s-%d cannot be initialized (%s): %s", group_id, name, index, error.name, error.message)
            then(not errors)

        self.move(group_id, offsets, epoch, on_results)

    def move(self, group_id: str, offsets: Mapping[Place, int], epoch: int, then: Callable[[dict[Place, ErrorCode]], None]) -> None:
        """Initialize partitions to begin at these offsets, and call `then` with the results."""
        questions = {place: InitializeState(SharePartitionKey(group_id, *place), epoch, offset) for place, offset in offsets.items()}
        self._ask(group_id, InitializeState, questions, then)

    def forget(self, group_id: str, places: Iterable[Place], then: Callable[[dict[Place, ErrorCode]], None]) -> None:
        """Delete the state of partitions, and call `then` with the results."""
        self._ask(group_id, DeleteState, {place: DeleteState(SharePartitionKey(group_id, *place)) for place in places}, then)

    def _ask(self, group_id: str, kind: type[Question], questions: Questions, then: Callable[[dict[Place, ErrorCode]], None]) -> None:
        """Ask, behind work of the other kind."""
        if not questions:
            then({})
            return
        work = self._work.get(group_id)
        if work is None:
            work = self._work[group_id] = _Work(kind)
        elif work.kind is not kind or work.behind:
            work.behind.append(partial(self._ask, group_id, kind, questions, then))
            return
        work.count += 1
        results: dict[Place, ErrorCode] = {}

        def on_result(place: Place, result: StateResult) -> None:
            results[place] = result.error
            if len(results) == len(questions):
                work.count -= 1
                if not work.count:
                    del self._work[group_id]
                    for ask in work.behind:
                        ask()
                then(results)

        begin(self._ask_each(questions, on_result))

    async def _ask_each(self, questions: Questions, on_result: Callable[[Place, StateResult], None]) -> None:
        """Ask with pauses: this broker may coordinate thousands of the partitions itself, and writes a record for each."""
        for place, question in questions.items():
            self._access.ask(question, partial(on_result, place))
            await pause()


class _Work:
    """Questions of one kind that a group is asking, and the others that wait for their end."""

    __slots__ = ("behind", "count", "kind")

    def __init__(self, kind: type[Question]) -> None:
        self.kind = kind
        self.count = 0
        self.behind: list[Callable[[], None]] = []
