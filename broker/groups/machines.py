"""Runs the state machines of the groups for `broker/coordination`: loads, unloads, times and stores groups."""

from __future__ import annotations

from functools import partial

from ottla.broker.coordination.large_table import LargeTable
from ottla.broker.coordination.record_encoding import encode_pairs
from ottla.broker.coordination.runner import EffectRunner
from ottla.broker.coordination.topic_log import UNAVAILABLE, TopicLog
from ottla.broker.groups.classic_group import ClassicGroup
from ottla.broker.groups.coordinated import CoordinatedGroups
from ottla.broker.groups.effects import Completion, Effect, Store, TimerKey
from ottla.broker.groups.group import Group
from ottla.broker.groups.loading import GroupLoader
from ottla.broker.groups.membership import on_loaded, on_unloaded
from ottla.broker.groups.rebalance import on_timer
from ottla.broker.groups.records import group_key
from ottla.broker.groups.syncing import on_stored
from ottla.broker.loop.timing_wheel import TimingWheel
from ottla.protocol.errors import ErrorCode
from ottla.storage.disk.clock import Clock

STORE_ERRORS = {
    **UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The code for the members, by the error of an append of group metadata."""

WEIGHT_OF_A_GROUP = 50
"""Of a group without offsets, in units of one offset."""


class GroupMachines:
    """See the module. Implements `coordination.elections.StateKind` and `coordination.runner.Machines`."""

    __slots__ = ("_clock", "_groups", "_log", "runner")

    noun = "groups"

    waits_for_replicas = False

    def __init__(self, groups: CoordinatedGroups, log: TopicLog, timing_wheel: TimingWheel, clock: Clock) -> None:
        self._groups = groups
        self._log = log
        self._clock = clock
        self.runner: EffectRunner[Group, Store] = EffectRunner(self, timing_wheel)

    # -- kept in partitions --------------------------------------------------------------------------------------------------

    def loader(self, name: str) -> GroupLoader:
        """A reader for the log of a partition of this name."""
        return GroupLoader(name, self._groups.settings)

    def on_loaded(self, state: Group) -> None:
        """The group was read from the log."""
        for producer_id in state.offsets.transactional:
            self._groups.enter_transaction(producer_id, state)
        self.runner.run(state, on_loaded(_classic(state), self._clock.now_ms()))

    def on_unloaded(self, states: LargeTable[str, Group]) -> None:
        """This broker no longer coordinates the groups."""
        for state in states.each():
            self._groups.leave_transactions(state)
            self.runner.cancel_timers(state)
            self.runner.run(state, on_unloaded(_classic(state), self._clock.now_ms()))

    def weight(self, state: Group) -> int:
        """How long it takes to free the group, in units of 0.1 µs."""
        return WEIGHT_OF_A_GROUP + len(state.offsets.committed) + sum(map(len, state.offsets.transactional.values()))

    # -- effects -------------------------------------------------------------------------------------------------------------

    def name_of(self, subject: Group) -> str:
        """The name of the group, for the log."""
        return f"group {subject.group_id}"

    def on_timer(self, subject: Group, key: TimerKey) -> list[Effect]:
        """A timer of the group is due."""
        return on_timer(_classic(subject), key, self._clock.now_ms())

    def carry_out(self, subject: Group, effect: Store) -> None:
        """Append the group's metadata."""
        index = self._groups.partition_for(subject.group_id)
        records = encode_pairs([(group_key(subject.group_id), effect.value)])
        self._log.append(index, records, 1, partial(self._on_stored, subject, effect.then))

    def _on_stored(self, group: Group, then: Completion, error: ErrorCode, _: int) -> None:
        self.runner.run(group, on_stored(_classic(group), then, STORE_ERRORS.get(error, error), self._clock.now_ms()))


def _classic(group: Group) -> ClassicGroup:
    """The group by its type, which decides about the state machine; only one type is loaded or made here."""
    assert isinstance(group, ClassicGroup)
    return group
