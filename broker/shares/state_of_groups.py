"""Initializes and deletes the state of all partitions of a share group, for the coordinator of the group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ottla.broker.shares.state.coordinator import StateResult
from ottla.broker.shares.state.stored_state import SharePartitionKey
from ottla.broker.shares.state_access import DeleteState, InitializeState, StateAccess

logger = logging.getLogger(__name__)

Partitions = Mapping[bytes, tuple[str, frozenset[int]]]
"""By topic id, the name of the topic, and partitions."""


class StateOfGroups:
    """See the module."""

    __slots__ = ("_access",)

    def __init__(self, access: StateAccess) -> None:
        self._access = access

    def initialize(self, group_id: str, partitions: Partitions, epoch: int, then: Callable[[bool], None]) -> None:
        """Initialize the partitions, and call `then` with whether all of them are."""
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
            self._access.ask(InitializeState(key, epoch), on_result)

    def delete(self, group_id: str, partitions: Partitions) -> None:
        """Delete the state of the partitions."""

        def on_result(result: StateResult) -> None:
            if result.error:
                logger.warning("group %s: the state of a share partition stays (%s): %s", group_id, result.error.name, result.message)

        for key in _keys(group_id, partitions):
            self._access.ask(DeleteState(key), on_result)


def _keys(group_id: str, partitions: Partitions) -> list[SharePartitionKey]:
    return [SharePartitionKey(group_id, topic_id, index) for topic_id, (_, indexes) in partitions.items() for index in sorted(indexes)]
