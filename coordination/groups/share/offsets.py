"""Moves share groups without members to other offsets, and deletes their offsets, for administrators.

First a record of the group says that the partitions are not initialized, but may have a state. After a failure they are initialized again
when a member needs them, and the same request can be repeated. Members that join meanwhile get their partitions afterwards.

Each move raises the epoch of the group: the share coordinator knows a late repeat of the move before by its epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from ottla.coordination.groups.consumer.effects import ConsumerEffect, Write
from ottla.coordination.groups.consumer.machine import ConsumerMachine, Event
from ottla.coordination.groups.consumer.records import GroupEpoch, Record, StatePartitions, TargetEpoch
from ottla.coordination.groups.consumer.settings import Context
from ottla.coordination.groups.share.group import Initialized, ShareGroup, joined
from ottla.coordination.partitions.effects import Reply
from ottla.protocol.errors import ErrorCode

Place: TypeAlias = tuple[bytes, int]
"""Topic id and index of a partition."""

Results: TypeAlias = dict[Place, ErrorCode]


class StateOfGroups(Protocol):
    """Changes the state of partitions of a group at the share coordinator."""

    def initialize(self, group_id: str, partitions: Initialized, epoch: int, grown: frozenset[bytes], then: Callable[[bool], None]) -> None:
        """Initialize partitions in an epoch; those of topics in `grown`, by id, begin at the first record. Calls `then` once with whether
        it is done."""

    def move(self, group_id: str, offsets: Mapping[Place, int], epoch: int, then: Callable[[Results], None]) -> None:
        """Initialize partitions to begin at these offsets, and call `then` with the results."""

    def forget(self, group_id: str, places: Iterable[Place], then: Callable[[Results], None]) -> None:
        """Delete the state of partitions, and call `then` with the results."""


class ShareOffsets:
    """See the module."""

    __slots__ = ("_machine", "_state")

    def __init__(self, machine: ConsumerMachine, state: StateOfGroups) -> None:
        self._machine = machine
        self._state = state

    async def move(self, group: ShareGroup, names: Mapping[bytes, str], offsets: Mapping[Place, int]) -> tuple[ErrorCode, Results]:
        """Let the group begin at these offsets. NON_EMPTY_GROUP if it has members. `names` has the topics by id."""
        async with group.changing:
            return await self._move(group, names, offsets)

    async def _move(self, group: ShareGroup, names: Mapping[bytes, str], offsets: Mapping[Place, int]) -> tuple[ErrorCode, Results]:
        indexes_of: dict[bytes, set[int]] = {}
        for topic, index in offsets:
            indexes_of.setdefault(topic, set()).add(index)
        partitions = {topic: (names[topic], frozenset(indexes)) for topic, indexes in indexes_of.items()}
        error, epoch = await self._write(group, partial(_begin, partitions))
        if error:
            return error, {}
        moved: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self._state.move(group.group_id, offsets, epoch, partial(_settle, moved))
        results = await moved
        done = {
            topic: (name, frozenset(index for index in indexes if not results[topic, index]))
            for topic, (name, indexes) in partitions.items()
        }
        error, _ = await self._write(group, partial(_end, done))
        return error, results

    async def forget(self, group: ShareGroup, topics: Initialized) -> tuple[ErrorCode, Results]:
        """Delete the offsets of the group in these topics. NON_EMPTY_GROUP if it has members. Those of deleted topics go by themselves."""
        async with group.changing:
            return await self._forget(group, topics)

    async def _forget(self, group: ShareGroup, topics: Initialized) -> tuple[ErrorCode, Results]:
        error, _ = await self._write(group, partial(_doubt, topics))
        if error:
            return error, {}
        deleted: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        places = [(topic, index) for topic, (_, indexes) in topics.items() for index in indexes]
        self._state.forget(group.group_id, places, partial(_settle, deleted))
        results: Results = {
            place: ErrorCode.NONE if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error for place, error in (await deleted).items()
        }
        gone = {topic: (name, frozenset(i for i in indexes if not results[topic, i])) for topic, (name, indexes) in topics.items()}
        error, _ = await self._write(group, partial(_forget, gone))
        return error, results

    async def forget_all(self, group: object) -> ErrorCode:
        """Delete the state of a share group that is to be deleted, or say why some of it stays. Groups of other types have none."""
        if not isinstance(group, ShareGroup):
            return ErrorCode.NONE
        async with group.changing:
            if not group.partitions_with_state():
                return ErrorCode.NONE
            error, results = await self._forget(group, group.partitions_with_state())
        return error or next(filter(None, results.values()), ErrorCode.NONE)

    def forget_topics(self, topics: Initialized, group: ShareGroup) -> None:
        """The group has nothing of these topics any more: they were deleted, and their state with them."""
        self._machine.submit(group, Event(lambda context: _without(topics, group)))

    async def _write(self, group: ShareGroup, decide: Any) -> tuple[ErrorCode, int]:
        """Decide about records, and wait until all in-sync replicas have them. Returns the epoch of the group after them, too."""
        written: asyncio.Future[tuple[ErrorCode, int]] = asyncio.get_running_loop().create_future()
        settle = partial(_settle, written)

        def decided(context: Context) -> list[ConsumerEffect]:
            outcome = decide(group)
            if isinstance(outcome, ErrorCode):
                return [Reply(settle, (outcome, group.epoch))]
            epochs = (record.epoch for record in outcome if isinstance(record, GroupEpoch) and record.epoch is not None)
            reply = Reply(settle, (ErrorCode.NONE, next(epochs, group.epoch)))
            return [Write(outcome, (reply,))] if outcome else [reply]

        self._machine.submit(group, Event(decided, lambda error: settle((error, 0))))
        return await written


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():  # the client may be gone
        future.set_result(result)


def _begin(partitions: Initialized, group: ShareGroup) -> tuple[Record, ...] | ErrorCode:
    if group.members:
        return ErrorCode.NON_EMPTY_GROUP
    state = _state(group, joined(group.initializing, partitions), group.initialized)
    if group.is_unwritten:
        return GroupEpoch(1, 0), TargetEpoch(1), *state
    return GroupEpoch(group.epoch + 1, group.metadata_hash), *state


def _end(done: Initialized, group: ShareGroup) -> tuple[Record, ...]:
    return _state(group, _minus(group.initializing, done), joined(group.initialized, done))


def _doubt(topics: Initialized, group: ShareGroup) -> tuple[Record, ...] | ErrorCode:
    """The partitions are not initialized, but may have a state."""
    if group.members:
        return ErrorCode.NON_EMPTY_GROUP
    return _state(group, joined(group.initializing, topics), _minus(group.initialized, topics))


def _forget(topics: Initialized, group: ShareGroup) -> tuple[Record, ...]:
    """The partitions have no state."""
    return _state(group, _minus(group.initializing, topics), group.initialized)


def _without(topics: Initialized, group: ShareGroup) -> list[ConsumerEffect]:
    records = _state(group, _minus(group.initializing, topics), _minus(group.initialized, topics))
    return [Write(records)] if records else []


def _state(group: ShareGroup, initializing: Initialized, initialized: Initialized) -> tuple[Record, ...]:
    """The record of a change, if it is one."""
    is_same = (initializing, initialized) == (group.initializing, group.initialized)
    return () if is_same else (StatePartitions(initializing, initialized),)


def _minus(some: Initialized, others: Initialized) -> Initialized:
    left = {topic: (name, indexes - others.get(topic, (name, frozenset()))[1]) for topic, (name, indexes) in some.items()}
    return {topic: each for topic, each in left.items() if each[1]}
