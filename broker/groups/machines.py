"""Runs the state machines of the groups for `broker/coordination`: loads, unloads and times groups. The type of a group decides about its
machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ottla.broker.coordination.runner import EffectRunner
from ottla.broker.coordination.topic_log import TopicLog, encode_pairs
from ottla.broker.groups.classic_group import ClassicGroup
from ottla.broker.groups.coordinated import CoordinatedGroups
from ottla.broker.groups.effects import Completion, Effect, Store, TimerKey
from ottla.broker.groups.group import Group
from ottla.broker.groups.loading import GroupLoader
from ottla.broker.groups.membership import on_loaded, on_unloaded
from ottla.broker.groups.rebalance import on_timer
from ottla.broker.groups.records import group_key
from ottla.broker.groups.store_errors import STORE_ERRORS
from ottla.broker.groups.syncing import on_stored
from ottla.broker.loop.timing_wheel import TimingWheel
from ottla.large_table import LargeTable
from ottla.protocol.errors import ErrorCode
from ottla.storage.disk.clock import Clock


class StateMachine(Protocol):
    """The state machine of the groups of one type; `Any` stands for that type and for its own effects."""

    def on_loaded(self, group: Any) -> None:
        """The group was read from the log."""

    def on_unloaded(self, group: Any) -> None:
        """This broker no longer coordinates the group. Its timers are cancelled."""

    def on_timer(self, group: Any, key: Any) -> Sequence[Any]:
        """A timer of the group is due; returns the effects."""

    def carry_out(self, group: Any, effect: Any) -> None:
        """Carry out an effect that is not known to the runner."""


class GroupMachines:
    """See the module. Implements `coordination.elections.StateKind` and `coordination.runner.Machines`."""

    __slots__ = ("_groups", "of_type", "runner")

    noun = "groups"

    waits_for_replicas = False

    def __init__(self, groups: CoordinatedGroups, timing_wheel: TimingWheel) -> None:
        """`of_type` is to be filled before the first group is loaded."""
        self._groups = groups
        self.of_type: Mapping[str, StateMachine] = {}
        self.runner: EffectRunner[Group, Any] = EffectRunner(self, timing_wheel)

    # -- kept in partitions --------------------------------------------------------------------------------------------------

    def loader(self, name: str) -> GroupLoader:
        """A reader for the log of a partition of this name."""
        return GroupLoader(name, self._groups.settings)

    def on_loaded(self, state: Group) -> None:
        """The group was read from the log."""
        for producer_id in state.offsets.transactional:
            self._groups.enter_transaction(producer_id, state)
        self.of_type[state.group_type].on_loaded(state)

    def on_unloaded(self, states: LargeTable[str, Group]) -> None:
        """This broker no longer coordinates the groups."""
        for state in states.each():
            self._groups.leave_transactions(state)
            self.runner.cancel_timers(state)
            self.of_type[state.group_type].on_unloaded(state)

    # -- effects -------------------------------------------------------------------------------------------------------------

    def name_of(self, subject: Group) -> str:
        """The name of the group, for the log."""
        return f"group {subject.group_id}"

    def on_timer(self, subject: Group, key: Any) -> Sequence[Any]:
        """A timer of the group is due."""
        return self.of_type[subject.group_type].on_timer(subject, key)

    def carry_out(self, subject: Group, effect: Any) -> None:
        """Carry out an effect of the group's own machine."""
        self.of_type[subject.group_type].carry_out(subject, effect)


class ClassicMachine:
    """Runs the state machine of classic groups. Implements `StateMachine`."""

    __slots__ = ("_clock", "_groups", "_log", "_runner")

    def __init__(self, groups: CoordinatedGroups, log: TopicLog, runner: EffectRunner[Group, Store], clock: Clock) -> None:
        self._groups = groups
        self._log = log
        self._runner = runner
        self._clock = clock

    def on_loaded(self, group: ClassicGroup) -> None:
        """The group was read from the log."""
        self._runner.run(group, on_loaded(group, self._clock.now_ms()))

    def on_unloaded(self, group: ClassicGroup) -> None:
        """This broker no longer coordinates the group."""
        self._runner.run(group, on_unloaded(group, self._clock.now_ms()))

    def on_timer(self, group: ClassicGroup, key: TimerKey) -> list[Effect]:
        """A timer of the group is due."""
        return on_timer(group, key, self._clock.now_ms())

    def carry_out(self, group: ClassicGroup, effect: Store) -> None:
        """Append the group's metadata."""
        index = self._groups.partition_for(group.group_id)
        records = encode_pairs([(group_key(group.group_id), effect.value)])
        self._log.append(index, records, 1, partial(self._on_stored, group, effect.then))

    def _on_stored(self, group: ClassicGroup, then: Completion, error: ErrorCode, _: int) -> None:
        self._runner.run(group, on_stored(group, then, STORE_ERRORS.get(error, error), self._clock.now_ms()))
