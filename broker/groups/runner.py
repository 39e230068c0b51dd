"""Carries out what the state machines of the groups want done: timers, answers, and records in the log.

Effects of a group are carried out in the order in which its transitions happened, also when carrying one out leads to the next transition
(an append that is replicated at once completes a rebalance): what comes up meanwhile is queued. They are carried out at once unless there
are many: the end of a rebalance answers all members, and others have the event loop between one part of that and the next. The timers of a
group that is behind wait for it, so that none fires that an effect in the queue would have put off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

from broker.groups.coordinated import CoordinatedGroups
from broker.groups.effects import Arm, Completion, Disarm, Effect, JoinResult, Many, Reply, Store, SyncResult, TimerKey
from broker.groups.group import Group, GroupState
from broker.groups.offsets_log import UNAVAILABLE, OffsetsLog
from broker.groups.rebalance import on_timer
from broker.groups.record_encoding import encode_pairs
from broker.groups.records import group_key
from broker.groups.syncing import on_stored
from broker.loop.timing_wheel import TimerTask, TimingWheel
from protocol.errors import ErrorCode
from storage.disk.clock import Clock

logger = logging.getLogger(__name__)

STORE_ERRORS = {
    **UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a failed append of group metadata means to the members."""


EFFECTS_PER_TURN = 120
"""How many are carried out before others have their turn: 1.5 ms, if half of them are answers and half are timers."""

LARGE_GROUP = 500
"""In a group of more members what concerns many begins a turn later: 1 µs for each was taken to decide on it."""


class Due(NamedTuple):
    """A timer fired while the group was behind."""

    key: TimerKey
    timer: object


class EffectRunner:
    """See the module."""

    __slots__ = ("_behind", "_clock", "_groups", "_log", "_scheduled", "_timing_wheel")

    def __init__(self, groups: CoordinatedGroups, log: OffsetsLog, timing_wheel: TimingWheel, clock: Clock) -> None:
        self._groups = groups
        self._log = log
        self._timing_wheel = timing_wheel
        self._clock = clock
        self._behind: dict[Group, deque[Effect | Due]] = {}
        """What is left to do of groups that are at it or have much to do; empty queues are not kept."""
        self._scheduled = False

    def run(self, group: Group, effects: Sequence[Effect]) -> None:
        """Carry out the effects of a transition of the group, after those that came before."""
        if not effects:
            return
        queue = self._behind.get(group)
        if queue is not None:
            queue.extend(effects)
            return
        if len(effects) == 1 and isinstance(effects[0], Arm):  # a heartbeat or a commit, from which nothing else follows
            self._carry_out(group, effects[0])
            return
        self._behind[group] = queue = deque(effects)
        if len(group.members) <= LARGE_GROUP or not any(isinstance(effect, Many) for effect in effects):
            self._carry_out_some(group, queue, EFFECTS_PER_TURN)
        if self._behind and not self._scheduled:
            self._schedule()

    def finish(self) -> None:
        """Carry out all that is left, at once."""
        while self._behind:
            group, queue = next(iter(self._behind.items()))
            self._carry_out_some(group, queue, EFFECTS_PER_TURN)

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._scheduled = False
        # Every group that is behind has its part of the turn, in the order in which they fell behind.
        share = max(1, EFFECTS_PER_TURN // max(1, len(self._behind)))
        for group, queue in list(self._behind.items()):
            self._carry_out_some(group, queue, share)
        if self._behind:
            self._schedule()

    def _carry_out_some(self, group: Group, queue: deque[Effect | Due], count: int) -> None:
        for _ in range(count):
            effect = queue[0]
            try:
                if not isinstance(effect, Many):
                    queue.popleft()
                    self._carry_out(group, effect)
                elif (one := next(effect.effects, None)) is not None:
                    self._carry_out(group, one)
                else:
                    queue.popleft()
            except Exception:
                logger.exception("group %s: %s could not be carried out; the rest goes on", group.group_id, type(effect).__name__)
            if not queue:
                del self._behind[group]
                return

    def cancel_timers(self, group: Group) -> None:
        """The group is dead."""
        for timer in group.timers.values():
            cast("TimerTask", timer).cancel()
        group.timers.clear()

    def _carry_out(self, group: Group, effect: Reply | Arm | Disarm | Store | Due) -> None:
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
        elif isinstance(effect, Due):
            self._on_due(group, effect)
        else:
            self._store(group, effect)

    def _on_timer(self, group: Group, timer: TimerKey) -> None:
        queue = self._behind.get(group)
        if queue is None:
            del group.timers[timer]
            self.run(group, on_timer(group, timer, self._clock.now_ms()))
        else:
            queue.append(Due(timer, group.timers[timer]))

    def _on_due(self, group: Group, due: Due) -> None:
        if group.timers.get(due.key) is due.timer:  # it was neither armed again nor disarmed meanwhile
            del group.timers[due.key]
            self.run(group, on_timer(group, due.key, self._clock.now_ms()))

    def _store(self, group: Group, store: Store) -> None:
        index = self._groups.partition_for(group.group_id)
        records = encode_pairs([(group_key(group.group_id), store.value)])
        self._log.append(index, records, 1, partial(self._on_stored, group, store.then))

    def _on_stored(self, group: Group, then: Completion, error: ErrorCode, _: int) -> None:
        self.run(group, on_stored(group, then, STORE_ERRORS.get(error, error), self._clock.now_ms()))
