"""Moves share groups without members to other offsets, and deletes their offsets, for administrators.

The record of the group comes first. A broker that stops after it leaves a partition that is initialized again, or a state that the next
initialization replaces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from ottla.broker.coordination.effects import Reply
from ottla.broker.groups.consumer.effects import ConsumerEffect, Write
from ottla.broker.groups.consumer.machine import ConsumerMachine, Event
from ottla.broker.groups.consumer.records import GroupEpoch, Record, StatePartitions, TargetEpoch
from ottla.broker.groups.consumer.settings import Context
from ottla.broker.groups.share.group import Initialized, ShareGroup, joined
from ottla.protocol.errors import ErrorCode

Place: TypeAlias = tuple[bytes, int]
"""Topic id and index of a partition."""

Results: TypeAlias = dict[Place, ErrorCode]


class StateOfGroups(Protocol):
    """Changes the state of partitions of a group at the share coordinator."""

    def initialize(self, group_id: str, partitions: Initialized, epoch: int, grown: frozenset[bytes], then: Callable[[bool], None]) -> None:
        """Initialize partitions in an epoch; those of topics in `grown`, by id, begin at the first record. Calls `then` once with whether
        it is done."""

    def delete(self, group_id: str, partitions: Initialized) -> None:
        """Delete the state of partitions."""

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
        partitions = {topic: (name, frozenset(index for other, index in offsets if other == topic)) for topic, name in names.items()}
        error = await self._write(group, partial(_begin, partitions))
        if error:
            return error, {}
        moved: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self._state.move(group.group_id, offsets, group.epoch, partial(_settle, moved))
        results = await moved
        done = {
            topic: (name, frozenset(index for index in indexes if not results[topic, index]))
            for topic, (name, indexes) in partitions.items()
        }
        return await self._write(group, partial(_end, done)), results

    async def forget(self, group: ShareGroup, topics: Initialized) -> tuple[ErrorCode, Results]:
        """Delete the offsets of the group in these topics. NON_EMPTY_GROUP if it has members."""
        error = await self._write(group, partial(_without, topics))
        if error:
            return error, {}
        deleted: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        places = [(topic, index) for topic, (_, indexes) in topics.items() for index in indexes]
        self._state.forget(group.group_id, places, partial(_settle, deleted))
        return ErrorCode.NONE, await deleted

    async def _write(self, group: ShareGroup, decide: Any) -> ErrorCode:
        """Decide about records, and wait until all in-sync replicas have them."""
        written: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        settle = partial(_settle, written)

        def decided(context: Context) -> list[ConsumerEffect]:
            outcome = decide(group)
            if isinstance(outcome, ErrorCode):
                return [Reply(settle, outcome)]
            reply = Reply(settle, ErrorCode.NONE)
            return [Write(outcome, (reply,))] if outcome else [reply]

        self._machine.submit(group, Event(decided, settle))
        return await written


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():  # the client may be gone
        future.set_result(result)


def _begin(partitions: Initialized, group: ShareGroup) -> tuple[Record, ...] | ErrorCode:
    if group.members:
        return ErrorCode.NON_EMPTY_GROUP
    records: tuple[Record, ...] = (StatePartitions(joined(group.initializing, partitions), group.initialized),)
    return (GroupEpoch(1, 0), TargetEpoch(1), *records) if group.is_unwritten else records


def _end(done: Initialized, group: ShareGroup) -> tuple[Record, ...]:
    return (StatePartitions(_minus(group.initializing, done), joined(group.initialized, done)),)


def _without(topics: Initialized, group: ShareGroup) -> tuple[Record, ...] | ErrorCode:
    if group.members:
        return ErrorCode.NON_EMPTY_GROUP
    return (StatePartitions(_minus(group.initializing, topics), _minus(group.initialized, topics)),)


def _minus(some: Initialized, others: Initialized) -> Initialized:
    left = {topic: (name, indexes - others.get(topic, (name, frozenset()))[1]) for topic, (name, indexes) in some.items()}
    return {topic: each for topic, each in left.items() if each[1]}
