"""Initializes and deletes the state of all partitions of a share group, for the coordinator of the group."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ottla.broker.shares.state.coordinator import StateResult
from ottla.broker.shares.state.stored_state import NO_OFFSET, SharePartitionKey
from ottla.broker.shares.state_access import StateAccess
from ottla.broker.shares.state_questions import DeleteState, InitializeState, Question
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Partitions = Mapping[bytes, tuple[str, frozenset[int]]]
"""By topic id, the name of the topic, and partitions."""

Place = tuple[bytes, int]
"""Topic id and index of a partition."""


class StateOfGroups:
    """See the module. New states of a group wait for deletions of its former ones: a late deletion would take a new state."""

    __slots__ = ("_access", "_behind", "_deletions")

    def __init__(self, access: StateAccess) -> None:
        self._access = access
        self._deletions: Counter[str] = Counter()
        """The deletions that have no result yet, by group."""
        self._behind: dict[str, list[Callable[[], None]]] = {}
        """The work that waits for deletions, by group."""

    def initialize(self, group_id: str, partitions: Partitions, epoch: int, grown: frozenset[bytes], then: Callable[[bool], None]) -> None:
        """Initialize the partitions, and call `then` with whether all of them are. Those of topics in `grown` begin at the first record."""
        if group_id in self._deletions:
            self._behind.setdefault(group_id, []).append(partial(self.initialize, group_id, partitions, epoch, grown, then))
            return
        keys = _keys(group_id, partitions)
        left = len(keys)
        is_done = True

        def on_result(result: StateResult) -> None:
            nonlocal left, is_done
            left -= 1
            if result.error:
                is_done = False
                logger.warning("group %s: a share partition cannot be initialized (%s): %s", group_id, result.error.name, result.message)
            if not left:
                then(is_done)

        for key in keys:
            start_offset = 0 if key.topic_id in grown else NO_OFFSET
            self._access.ask(InitializeState(key, epoch, start_offset), on_result)

    def move(self, group_id: str, offsets: Mapping[Place, int], epoch: int, then: Callable[[dict[Place, ErrorCode]], None]) -> None:
        """Initialize partitions to begin at these offsets, and call `then` with the results."""
        if group_id in self._deletions:
            self._behind.setdefault(group_id, []).append(partial(self.move, group_id, offsets, epoch, then))
            return
        self._each({place: InitializeState(SharePartitionKey(group_id, *place), epoch, offset) for place, offset in offsets.items()}, then)

    def forget(self, group_id: str, places: Iterable[Place], then: Callable[[dict[Place, ErrorCode]], None]) -> None:
        """Delete the state of partitions, and call `then` with the results."""
        self._deletions[group_id] += 1

        def on_results(results: dict[Place, ErrorCode]) -> None:
            self._deletions[group_id] -= 1
            if not self._deletions[group_id]:
                del self._deletions[group_id]
                for work in self._behind.pop(group_id, ()):
                    work()
            then(results)

        self._each({place: DeleteState(SharePartitionKey(group_id, *place)) for place in places}, on_results)

    def _each(self, questions: Mapping[Place, Question], then: Callable[[dict[Place, ErrorCode]], None]) -> None:
        results: dict[Place, ErrorCode] = {}

        def on_result(place: Place, result: StateResult) -> None:
            results[place] = result.error
            if len(results) == len(questions):
                then(results)

        for place, question in questions.items():
            self._access.ask(question, partial(on_result, place))
        if not questions:
            then(results)


def _keys(group_id: str, partitions: Partitions) -> list[SharePartitionKey]:
    return [SharePartitionKey(group_id, topic_id, index) for topic_id, (_, indexes) in partitions.items() for index in sorted(indexes)]
