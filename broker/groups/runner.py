"""Carries out what the state machines of the groups want done: timers, answers, and records in the log.

Effects are carried out in the order in which the transitions happened, also when carrying one out leads to the next transition (an append
that is replicated at once completes a rebalance): what comes up meanwhile is queued.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from broker.groups.coordinated import CoordinatedGroups
from broker.groups.effects import Arm, Completion, Disarm, Effect, JoinResult, Reply, Store, SyncResult, TimerKey
from broker.groups.group import Group, GroupState
from broker.groups.offsets_log import OffsetsLog
from broker.groups.rebalance import on_timer
from broker.groups.records import group_key
from broker.groups.syncing import on_stored
from broker.timing_wheel import TimerTask, TimingWheel
from protocol.errors import ErrorCode
from storage.clock import Clock

logger = logging.getLogger(__name__)

STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a failed append of group metadata means to the members."""


class EffectRunner:
    """See the module."""

    __slots__ = ("_clock", "_groups", "_log", "_queue", "_running", "_timing_wheel")

    def __init__(self, groups: CoordinatedGroups, log: OffsetsLog, timing_wheel: TimingWheel, clock: Clock) -> None:
        self._groups = groups
        self._log = log
        self._timing_wheel = timing_wheel
        self._clock = clock
        self._queue: deque[tuple[Group, Effect]] = deque()
        self._running = False

    def run(self, group: Group, effects: Iterable[Effect]) -> None:
        """Carry out the effects of a transition of the group, after those that came before."""
        queue = self._queue
        queue.extend((group, effect) for effect in effects)
        if self._running:
            return
        self._running = True
        try:
            while queue:
                group, effect = queue.popleft()
                try:
                    self._carry_out(group, effect)
                except Exception:
                    logger.exception("group %s: %s could not be carried out; the rest goes on", group.group_id, type(effect).__name__)
        finally:
            self._running = False

    def cancel_timers(self, group: Group) -> None:
        """The group is dead."""
        for timer in group.timers.values():
            cast("TimerTask", timer).cancel()
        group.timers.clear()

    def _carry_out(self, group: Group, effect: Effect) -> None:
        if isinstance(effect, Reply):
            cast("Callable[[JoinResult | SyncResult], None]", effect.waiter)(effect.result)
        elif isinstance(effect, Arm):
            timers = group.timers
            old = timers.get(effect.key)
            if old is not None:
                cast("TimerTask", old).cancel()
            if group.state is GroupState.DEAD:
                return
            timers[effect.key] = self._timing_wheel.add(effect.delay_ms, partial(self._on_timer, group, effect.key))
        elif isinstance(effect, Disarm):
            timer = group.timers.pop(effect.key, None)
            if timer is not None:
                cast("TimerTask", timer).cancel()
        else:
            self._store(group, effect)

    def _on_timer(self, group: Group, key: TimerKey) -> None:
        group.timers.pop(key, None)
        self.run(group, on_timer(group, key, self._clock.now_ms()))

    def _store(self, group: Group, store: Store) -> None:
        index = self._groups.partition_for(group.group_id)
        self._log.append(index, [(group_key(group.group_id), store.value)], partial(self._on_stored, group, store.then))

    def _on_stored(self, group: Group, then: Completion, error: ErrorCode, _: int) -> None:
        self.run(group, on_stored(group, then, STORE_ERRORS.get(error, error), self._clock.now_ms()))
