"""Runs the state machines of consumer groups: one event of a group after the other, and each to its end.

An event is complete when its records are in the log and applied to the group. Some events need work that takes long: a target, the check
of a regular expression, or the conversion of the group. A thread does it; the next events of the same group wait meanwhile, and those of
other groups do not. The answer is sent when all in-sync replicas have the records, also those of earlier events of the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple

from ottla.coordination.groups.classic_group import ClassicGroup
from ottla.coordination.groups.consumer.conversion import downgraded, on_reverted
from ottla.coordination.groups.consumer.effects import (
    CheckRegex,
    Compute,
    ComputeTarget,
    ConsumerEffect,
    Convert,
    Decision,
    ResolveRegexes,
    Write,
)
from ottla.coordination.groups.consumer.group import AssignedGroup, ConsumerGroup
from ottla.coordination.groups.consumer.heartbeats import interval_ms
from ottla.coordination.groups.consumer.members import MemberState
from ottla.coordination.groups.consumer.records import GroupEpoch, Pair
from ottla.coordination.groups.consumer.regexes import RegexThreads, matches_of, reason_against
from ottla.coordination.groups.consumer.removal import on_timer
from ottla.coordination.groups.consumer.settings import ConsumerSettings, Context
from ottla.coordination.groups.consumer.subscriptions import on_resolved
from ottla.coordination.groups.consumer.targets import compute
from ottla.coordination.groups.consumer.timers import MemberTimer, TimerKind
from ottla.coordination.groups.coordinated import CoordinatedGroups
from ottla.coordination.groups.group import Group, GroupState
from ottla.coordination.groups.membership import on_loaded
from ottla.coordination.groups.rebalance import maybe_prepare_rebalance
from ottla.coordination.partitions.effects import Arm, Reply
from ottla.coordination.partitions.runner import EffectRunner
from ottla.coordination.partitions.topic_log import GROUP_STORE_ERRORS, NOT_APPENDED, Then, TopicLog, encode_pairs
from ottla.pauses import is_over, pause
from ottla.protocol.errors import ErrorCode
from ottla.replication.ports.cluster import MetadataCache
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)


class Event(NamedTuple):
    """An event of a group."""

    decide: Callable[[Context], Decision | list[ConsumerEffect]]
    refuse: Callable[[ErrorCode], object] = lambda error: None
    """Answers with an error, when the group is gone or its records cannot be written."""


class ConsumerMachine:
    """See the module. Implements `machines.StateMachine`."""

    __slots__ = (
        "_clock",
        "_cluster",
        "_groups",
        "_log",
        "_queues",
        "_runner",
        "_tasks",
        "_waiting",
        "_workers",
        "members",
        "rebalances",
        "regex_threads",
        "settings",
        "when_idle",
    )

    def __init__(
        self,
        groups: CoordinatedGroups,
        log: TopicLog,
        runner: EffectRunner[Group, Any],
        cluster: MetadataCache,
        clock: Clock,
        workers: Executor,
        settings: ConsumerSettings,
    ) -> None:
        self._groups = groups
        self._log = log
        self._runner = runner
        self._cluster = cluster
        self._clock = clock
        self._workers = workers
        self.regex_threads = RegexThreads(workers)
        self.settings = settings
        self.rebalances = 0
        """How often the epoch of a group was raised."""
        self.members = 0
        """The members of all groups that are served, and that are written in the log."""
        self.when_idle: Callable[[Any], object] = lambda group: None
        """Called with a group that is served, after the last of its events."""
        self._queues: dict[AssignedGroup, deque[Event]] = {}
        """The events that wait, by group with an event in progress."""
        self._tasks: set[asyncio.Future[None]] = set()
        self._waiting: dict[AssignedGroup, list[tuple[Event, list[Reply]]]] = {}
        """The answers that wait for the last append of a group: they tell of records that could still be lost."""

    def submit(self, group: AssignedGroup, event: Event) -> None:
        """Decide about an event, now or after the earlier ones."""
        queue = self._queues.get(group)
        if queue is not None:
            queue.append(event)
            return
        self._queues[group] = queue = deque((event,))
        self._go_on(group, queue)

    def is_idle(self, group: AssignedGroup) -> bool:
        """Whether no event of the group is in progress, and no answer waits for the log."""
        return group not in self._queues and group not in self._waiting

    def is_deciding(self, group: AssignedGroup) -> bool:
        """Whether an event of the group is in progress; `when_idle` is called after the last one."""
        return group in self._queues

    def _go_on(self, group: AssignedGroup, queue: deque[Event]) -> None:
        """Decide about the events that wait, up to one that needs a thread. After a slice the others wait for the next turn of the loop."""
        is_first = True
        while queue:
            if not is_first and is_over():
                self.track(self._go_on_later(group, queue))
                return
            is_first = False
            event = queue.popleft()
            if group.is_dead:
                event.refuse(ErrorCode.NOT_COORDINATOR)
                continue
            try:
                decision = event.decide(self.context_of(group))
                if isinstance(decision, list):
                    if not self._carry_out(group, event, decision):
                        return
                elif not self._advance(group, event, decision, None):
                    return
            except Exception:  # a fault of this broker: the next events would wait forever
                self._failed(group, event)
        del self._queues[group]
        if group.replaced is not None:
            self._give_up(group, group.replaced)
        elif group.is_unwritten and not group.offsets and not group.is_dead and self._groups.forget(group.group_id, group):
            group.end(self._clock.now_ms())
        elif not group.is_dead:
            self.when_idle(group)

    async def _go_on_later(self, group: AssignedGroup, queue: deque[Event]) -> None:
        await pause()
        self._go_on(group, queue)

    def track(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, which `stop` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give_up(self, group: AssignedGroup, old: Group) -> None:
        """Nothing of the group is in the log, so it continues as the group that it was to replace."""
        group.replaced = None
        if not group.is_dead:
            now_ms = self._clock.now_ms()
            self._groups.replace(group, old)
            group.end(now_ms)
            self._runner.cancel_timers(group)
            if isinstance(old, ClassicGroup):
                self._runner.run(old, on_reverted(old, now_ms))

    def _advance(self, group: AssignedGroup, event: Event, decision: Decision, result: object) -> bool:
        """Continue a decision; False if it needs a thread."""
        try:
            work = decision.send(result)
        except StopIteration as end:
            return self._carry_out(group, event, end.value)
        except Exception:
            self._failed(group, event)
            return True
        self.track(self._work(group, event, decision, work))
        return False

    async def _work(self, group: AssignedGroup, event: Event, decision: Decision, work: CheckRegex | ComputeTarget | Compute) -> None:
        is_done = True
        try:
            result: object
            if isinstance(work, CheckRegex):
                result = await self.regex_threads.run(reason_against, work.regex)
            else:
                result = await self.in_thread(partial(compute, work) if isinstance(work, ComputeTarget) else work.run)
            await pause()  # the targets of many groups may be ready in one turn of the loop
            if group.is_dead:
                decision.close()
                event.refuse(ErrorCode.NOT_COORDINATOR)
            else:
                is_done = self._advance(group, event, decision, result)
        except Exception:
            self._failed(group, event)
        if is_done:
            self._go_on(group, self._queues[group])

    def in_thread(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """The result of work that takes too long for the event loop."""
        return asyncio.get_running_loop().run_in_executor(self._workers, work)

    def _failed(self, group: AssignedGroup, event: Event) -> None:
        logger.exception("group %s: an event could not be decided", group.group_id)
        event.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def context_of(self, group: AssignedGroup) -> Context:
        """The facts that decisions about a group depend on now."""
        settings = self.settings
        times = settings.times_of(group.group_id)
        return Context(self._clock.now_ms(), self._cluster.topics, settings, times, interval_ms(times, settings, self.members))

    # -- effects -----------------------------------------------------------------------------------------------------------

    def _carry_out(self, group: AssignedGroup, event: Event, effects: list[ConsumerEffect]) -> bool:
        """Write first: if that fails, nothing else happens. Returns False if a thread converts the group."""
        others: list[Any] = []
        convert: Convert | None = None
        for effect in effects:
            if isinstance(effect, Write):
                if not self._write(group, event, effect):
                    return True
            elif isinstance(effect, Convert):
                convert = effect
            else:
                others.append(effect)
        if convert is not None:
            assert isinstance(group, ConsumerGroup)  # no other group has classic members
            self.track(self._convert_in_thread(group, event, convert, others))
            return False
        self._run_others(group, event, others)
        return True

    def _run_others(self, group: AssignedGroup, event: Event, effects: list[Any]) -> None:
        """Carry out effects that follow what was written."""
        others = []
        for effect in effects:
            if isinstance(effect, ResolveRegexes):
                self._resolve(group, effect)
            else:
                others.append(effect)
        waiting = self._waiting.get(group)
        if waiting is not None:
            replies = [effect for effect in others if isinstance(effect, Reply)]
            if replies:
                waiting.append((event, replies))
                others = [effect for effect in others if not isinstance(effect, Reply)]
        self._runner.run(group, others)

    def _write(self, group: AssignedGroup, event: Event, write: Write) -> bool:
        """Append the records and apply them; False if they cannot be appended."""
        waiting: list[tuple[Event, list[Reply]]] = []
        is_stored = False

        def stored(error: ErrorCode, _: int) -> None:
            nonlocal is_stored
            is_stored = True
            if self._waiting.get(group) is waiting:
                del self._waiting[group]
            for answered, replies in ((event, write.replies), *waiting):
                if error:
                    answered.refuse(GROUP_STORE_ERRORS.get(error, error))
                else:
                    self._runner.run(group, replies)

        old = group.replaced
        pairs = group.pairs_of(write.records)
        if old is not None:
            pairs = [*[(key, None) for key in old.tombstones()], *group.creation, *pairs]
        if not self._append(group, pairs, stored):
            self._runner.run(group, write.otherwise)
            return False
        if not is_stored:
            self._waiting[group] = waiting
        for record in write.records:
            group.apply(record)
            self.rebalances += isinstance(record, GroupEpoch)
        self._count_members(group)
        if old is not None:
            group.replaced, group.creation = None, ()
            old.end(self._clock.now_ms())
            self._arm_timers(group)
        return True

    def _append(self, group: AssignedGroup, pairs: list[Pair], stored: Then) -> bool:
        """Append records; False if they cannot be. This broker may lead the lost partition of a group again, with a newer state of it."""
        owned = self._groups.owner_of(group.group_id, group)
        if owned is None:
            stored(ErrorCode.NOT_COORDINATOR, NOT_APPENDED)
            return False
        return self._log.append(owned.index, encode_pairs(pairs), len(pairs), stored) != NOT_APPENDED

    async def _convert_in_thread(self, group: ConsumerGroup, event: Event, convert: Convert, others: list[Any]) -> None:
        """Replace the group by a classic one, unless that cannot be written. The next events of the group wait."""
        now_ms = self._clock.now_ms()
        try:
            work = partial(downgraded, group, convert.without, self._groups.settings, self._cluster.names_by_id, now_ms)
            classic, pairs = await self.in_thread(work)
            await pause()
            if not group.is_dead:
                self._convert(group, event, convert, classic, pairs)
            elif convert.replies:
                event.refuse(ErrorCode.NOT_COORDINATOR)
            self._run_others(group, event, others)
        except Exception:
            self._failed(group, event)
        self._go_on(group, self._queues[group])

    def _convert(self, group: ConsumerGroup, event: Event, convert: Convert, classic: ClassicGroup, pairs: list[Pair]) -> None:
        is_settled = not convert.without and group.state is GroupState.STABLE

        def stored(error: ErrorCode, _: int) -> None:
            if not error:
                self._runner.run(classic, convert.replies)
            elif convert.replies:  # otherwise the records that were written before answer the event
                event.refuse(GROUP_STORE_ERRORS.get(error, error))

        if not self._append(group, pairs, stored):
            self._runner.run(group, convert.otherwise)
            return
        logger.info("group %s: its members all have the classic protocol now, generation %d", group.group_id, classic.generation_id)
        self._groups.replace(group, classic)
        self._end(group)
        self._runner.cancel_timers(group)
        now_ms = self._clock.now_ms()
        effects = on_loaded(classic, now_ms)
        if not is_settled:  # there may be partitions that no member has
            maybe_prepare_rebalance(classic, "it is a classic group again", now_ms, effects)
        self._runner.run(classic, effects)

    def bury(self, group: AssignedGroup) -> bool:
        """Write the tombstones of a group, and end it; False if they cannot be written."""
        keys = group.tombstones()
        if keys and not self._log.append_tombstones(self._groups.partition_for(group.group_id), keys):
            return False
        self._end(group)
        self._runner.cancel_timers(group)
        return True

    def _count_members(self, group: AssignedGroup) -> None:
        self.members += len(group.members) - group.counted_members
        group.counted_members = len(group.members)

    def _end(self, group: AssignedGroup) -> None:
        """The group is dead, and its members do not count any more. A load that has not reached the group has not counted them."""
        self.members -= group.counted_members
        group.counted_members = 0
        group.end(self._clock.now_ms())

    def _resolve(self, group: AssignedGroup, work: ResolveRegexes) -> None:
        group.is_resolving = True
        self.track(self._resolve_in_thread(group, work))

    async def _resolve_in_thread(self, group: AssignedGroup, work: ResolveRegexes) -> None:
        topics = self._cluster.topics
        try:
            matches = await self.regex_threads.run(matches_of, work.regexes, topics)
            found: dict[str, frozenset[str]] = {}
            seen: dict[str, bool] = {}
            for regex, names in matches.items():
                for name in names:
                    if name not in seen:
                        seen[name] = work.may_describe(name)
                        await pause()
                found[regex] = frozenset([name for name in names if seen[name]])
        except Exception:
            logger.exception("group %s: its regular expressions could not be evaluated", group.group_id)
            return
        finally:
            group.is_resolving = False
        self.submit(group, Event(partial(_on_resolved, group, found, topics)))

    # -- kept in partitions --------------------------------------------------------------------------------------------------

    def on_loaded(self, group: AssignedGroup) -> None:
        """The group was loaded."""
        self._count_members(group)
        self._arm_timers(group)

    def _arm_timers(self, group: AssignedGroup) -> None:
        """All members have a session timeout to send a heartbeat."""
        effects: list[Any] = []
        session_ms = self.settings.times_of(group.group_id).session_timeout_ms
        for member in group.members.values():
            timeout_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
            effects.append(Arm(MemberTimer(TimerKind.SESSION, member.member_id), timeout_ms))
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                effects.append(Arm(MemberTimer(TimerKind.REBALANCE, member.member_id), max(0, member.rebalance_timeout_ms)))
        self._runner.run(group, effects)

    def on_unloaded(self, group: AssignedGroup) -> None:
        """This broker no longer coordinates the group. Events that wait are refused when the thread is done with the one before."""
        self._end(group)

    def on_timer(self, group: AssignedGroup, key: MemberTimer) -> list[Any]:
        """A timer of the group is due."""
        self.submit(group, Event(partial(_on_timer, group, key)))
        return []

    def carry_out(self, group: AssignedGroup, effect: object) -> None:
        """All effects of these groups that the runner does not know are carried out above."""
        raise AssertionError(f"group {group.group_id}: {type(effect).__name__}")

    async def stop(self) -> None:
        """Wait for the threads; the groups are unloaded."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _on_timer(group: AssignedGroup, key: MemberTimer, context: Context) -> Decision | list[ConsumerEffect]:
    if key in group.timers:
        return []  # an earlier event, which the timer had to wait for, has armed it again
    return on_timer(group, key, context)


def _on_resolved(group: AssignedGroup, found: Mapping[str, frozenset[str]], topics: Any, context: Context) -> Decision:
    return on_resolved(group, found, context._replace(topics=topics))
