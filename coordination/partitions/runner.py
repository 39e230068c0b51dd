"""Carries out the effects of a coordinator's state machines: answers and timers itself, others by their `Machines`.

Effects of a state are carried out in the order of its transitions. An effect may cause the next transition: an append that is replicated at
once completes a rebalance. The effects of that transition are queued. Effects are carried out at once unless there are many. The end of a
rebalance answers all members, so it is split into parts, and other work of the event loop runs in between. While effects of a state are
queued, its timers wait, because a queued effect may re-arm or disarm them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.coordination.partitions.effects import Arm, Disarm, Many, Reply
from ottla.pauses import begin, is_over, pause
from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel

logger = logging.getLogger(__name__)

LARGE = 500
"""Number of members, or similar objects, from which on a `Many` begins one turn later, because the decision took 1 µs for each."""


class Timed(Protocol):
    """A state with timers, which belong to the runner."""

    @property
    def timers(self) -> dict[Hashable, TimerTask]:
        """The armed timers by their keys."""

    @property
    def is_dead(self) -> bool:
        """Whether the state is dead: no timer is armed for it."""


Subject = TypeVar("Subject", bound=Timed)
Subject_contra = TypeVar("Subject_contra", bound=Timed, contravariant=True)
Other = TypeVar("Other")


class Machines(Protocol[Subject_contra, Other]):
    """The state machines whose effects are carried out, with effects of their own."""

    def on_timer(self, subject: Subject_contra, key: Any) -> Sequence[Reply | Arm | Disarm | Many | Other]:
        """A timer is due; returns the effects of the transition."""

    def carry_out(self, subject: Subject_contra, effect: Other) -> None:
        """Carry out an effect that the runner does not know."""

    def name_of(self, subject: Subject_contra) -> str:
        """The name of the subject, for the log."""


class Due(NamedTuple):
    """A timer fired while effects of the subject were queued."""

    key: Hashable
    timer: TimerTask


class Runner:
    """Carries out effects of any state machines. A compiled class cannot be generic, so `EffectRunner` adds the types."""

    __slots__ = ("_behind", "_machines", "_scheduled", "_timing_wheel")

    def __init__(self, machines: Machines[Any, Any], timing_wheel: TimingWheel) -> None:
        self._machines = machines
        self._timing_wheel = timing_wheel
        self._behind: dict[Any, deque[Any]] = {}
        """The effects left to carry out, by subject; empty queues are not kept."""
        self._scheduled = False

    def run(self, subject: Any, effects: Sequence[Any]) -> None:
        """Carry out the effects of a transition of the subject, after its earlier effects."""
        if not effects:
            return
        queue = self._behind.get(subject)
        if queue is not None:
            queue.extend(effects)
            return
        if len(effects) == 1 and isinstance(effects[0], Arm):  # a heartbeat or a commit, from which nothing else follows
            self._arm(subject, effects[0].key, effects[0].delay_ms)
            return
        self._behind[subject] = queue = deque(effects)
        if self._most_concerned(effects) <= LARGE:
            self._carry_out_some(subject, queue, at_once=False)
        if self._behind and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_rest)

    def arm(self, subject: Any, key: Hashable, delay_ms: int) -> None:
        """Carry out an `Arm` of the subject, after its earlier effects."""
        queue = self._behind.get(subject)
        if queue is None:
            self._arm(subject, key, delay_ms)
        else:
            queue.append(Arm(key, delay_ms))

    def _most_concerned(self, effects: Sequence[Any]) -> int:
        most = 0
        for effect in effects:
            if isinstance(effect, Many):
                most = max(most, effect.concerned)
        return most

    def finish(self) -> None:
        """Carry out all remaining effects at once."""
        while self._behind:
            subject, queue = next(iter(self._behind.items()))
            self._carry_out_some(subject, queue, at_once=True)

    def _begin_rest(self) -> None:
        begin(self._go_on())

    async def _go_on(self) -> None:
        """Carry out the effects that are left. The subjects take turns, in the order in which their queues began."""
        while self._behind:
            for subject, queue in list(self._behind.items()):
                if self._behind.get(subject) is queue:
                    self._carry_out_one(subject, queue)
                    await pause()
        self._scheduled = False

    def _carry_out_some(self, subject: Any, queue: deque[Any], *, at_once: bool) -> None:
        """Carry out effects of a subject: all of them, or those of a `Many` for the rest of the slice. Other effects are few."""
        while queue:
            if not at_once and isinstance(queue[0], Many) and is_over():
                return
            self._carry_out_one(subject, queue)

    def _carry_out_one(self, subject: Any, queue: deque[Any]) -> None:
        effect = queue[0]
        try:
            if not isinstance(effect, Many):
                queue.popleft()
                self._carry_out(subject, effect)
            elif (one := next(effect.effects, None)) is not None:
                self._carry_out(subject, one)
            else:
                queue.popleft()
        except Exception:
            name = self._machines.name_of(subject)
            logger.exception("%s: %s could not be carried out; the rest goes on", name, type(effect).__name__)
        if not queue:
            del self._behind[subject]

    def fire_early(self, subject: Any, key: Hashable) -> bool:
        """Let a timer of the subject fire now. Returns whether it has one with this key."""
        timer = subject.timers.get(key)
        if timer is None:
            return False
        timer.cancel()
        self._on_timer(subject, key)
        return True

    def cancel_timers(self, subject: Any) -> None:
        """The subject is dead."""
        for timer in subject.timers.values():
            timer.cancel()
        subject.timers.clear()

    def _carry_out(self, subject: Any, effect: Any) -> None:
        if isinstance(effect, Reply):
            waiter: Any = effect.waiter
            waiter(effect.result)
        elif isinstance(effect, Arm):
            self._arm(subject, effect.key, effect.delay_ms)
        elif isinstance(effect, Disarm):
            timer = subject.timers.pop(effect.key, None)
            if timer is not None:
                timer.cancel()
        elif isinstance(effect, Due):
            self._on_due(subject, effect)
        else:
            self._machines.carry_out(subject, effect)

    def _arm(self, subject: Any, key: Hashable, delay_ms: int) -> None:
        timers = subject.timers
        old = timers.get(key)
        if old is not None:
            if old.postpone(delay_ms) and not subject.is_dead:
                return
            old.cancel()
        if not subject.is_dead:
            timers[key] = self._timing_wheel.add(delay_ms, partial(self._on_timer, subject, key))

    def _on_timer(self, subject: Any, key: Hashable) -> None:
        queue = self._behind.get(subject)
        if queue is None:
            del subject.timers[key]
            self.run(subject, self._machines.on_timer(subject, key))
        else:
            queue.append(Due(key, subject.timers[key]))

    def _on_due(self, subject: Any, due: Due) -> None:
        if subject.timers.get(due.key) is due.timer:  # it was neither armed again nor disarmed meanwhile
            del subject.timers[due.key]
            self.run(subject, self._machines.on_timer(subject, due.key))


class EffectRunner(Runner, Generic[Subject, Other]):
    """See the module."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(self, machines: Machines[Subject, Other], timing_wheel: TimingWheel) -> None: ...

        def run(self, subject: Subject, effects: Sequence[Reply | Arm | Disarm | Many | Other]) -> None: ...
