"""Runs the state machine of classic groups. Implements `machines.StateMachine`."""

from __future__ import annotations

from functools import partial

from ottla.broker.coordination.record_encoding import encode_pairs
from ottla.broker.coordination.runner import EffectRunner
from ottla.broker.coordination.topic_log import TopicLog
from ottla.broker.groups.classic_group import ClassicGroup
from ottla.broker.groups.coordinated import CoordinatedGroups
from ottla.broker.groups.effects import Completion, Effect, Store, TimerKey
from ottla.broker.groups.group import Group
from ottla.broker.groups.membership import on_loaded, on_unloaded
from ottla.broker.groups.rebalance import on_timer
from ottla.broker.groups.records import group_key
from ottla.broker.groups.store_errors import STORE_ERRORS
from ottla.broker.groups.syncing import on_stored
from ottla.protocol.errors import ErrorCode
from ottla.storage.disk.clock import Clock


class ClassicMachine:
    """See the module."""

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
