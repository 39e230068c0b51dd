"""Receives the requests about consumer groups of the new protocol: checks that this broker coordinates the group, and hands over events.

`ottla.coordination.groups.coordinator.GroupCoordinator` owns the only instance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, final

from ottla.coordination.groups.classic_group import ClassicGroup
from ottla.coordination.groups.consumer.classic_members import (
    on_classic_heartbeat,
    on_classic_join,
    on_classic_sync,
    on_leave,
)
from ottla.coordination.groups.consumer.conversion import CustomAssignorError, before_upgrade, may_upgrade, send_away, upgraded
from ottla.coordination.groups.consumer.effects import Beat, BeatReply, BeatResult, ConsumerEffect
from ottla.coordination.groups.consumer.group import AssignedGroup, ConsumerGroup
from ottla.coordination.groups.consumer.heartbeats import NO_ROOM, Refused, check, has_no_news, interval_ms, on_heartbeat
from ottla.coordination.groups.consumer.machine import ConsumerMachine, Event
from ottla.coordination.groups.consumer.members import JOINING
from ottla.coordination.groups.consumer.settings import ConsumerSettings, Context
from ottla.coordination.groups.consumer.subscriptions import preferred
from ottla.coordination.groups.consumer.timers import MemberTimer, TimerKind
from ottla.coordination.groups.coordinated import CoordinatedGroups
from ottla.coordination.groups.effects import JoinResult, LeaveReply, LeaveResult, SyncResult
from ottla.coordination.groups.group import Group, GroupState
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.rebalance import Join
from ottla.coordination.groups.syncing import Sync
from ottla.coordination.partitions.runner import EffectRunner
from ottla.coordination.partitions.topic_log import TopicLog
from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.wire import ProtocolError
from ottla.replication.ports.cluster import MetadataCache
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)


FIRST_LEVEL: Final = 1
"""The level of the feature from which on there are these groups."""
MOST_UPGRADES: Final = 10
"""How often a thread converts a classic group that has changed meanwhile, before the new member has to ask again."""


@final
class ConsumerGroups:
    """See the module."""

    __slots__ = ("_clock", "_cluster", "_groups", "_level", "_new_uuid", "_runner", "_upgrades", "machine")

    def __init__(
        self,
        groups: CoordinatedGroups,
        log: TopicLog,
        runner: EffectRunner[Group, Any],
        cluster: MetadataCache,
        clock: Clock,
        workers: Executor,
        settings: ConsumerSettings,
        new_uuid: Callable[[], object],
        level: Callable[[], int],
    ) -> None:
        """`level` returns the level of the feature `group.version`."""
        self._level = level
        self._groups = groups
        self._cluster = cluster
        self._runner = runner
        self._new_uuid = new_uuid
        self._clock = clock
        self._upgrades: dict[ClassicGroup, list[Beat]] = {}
        """The heartbeats that wait for the conversion of their group."""
        self.machine = ConsumerMachine(groups, log, runner, cluster, clock, workers, settings)
        self.machine.when_idle = self._leave_protocol

    @property
    def settings(self) -> ConsumerSettings:
        """The settings of all groups."""
        return self.machine.settings

    @property
    def is_served(self) -> bool:
        """Whether the cluster has these groups."""
        return self._level() >= FIRST_LEVEL

    def describe(self, group_id: str) -> tuple[ErrorCode, str | None, ConsumerGroup | None]:
        """(error, message, group): the group as it is now."""
        error, group = self._groups.find(group_id)
        if error:
            return error, None, None
        if group is None or group.is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", None
        if not isinstance(group, ConsumerGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.", None
        return ErrorCode.NONE, None, group

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The assignor of a group: the one that most members ask for, or the default."""
        return preferred(group.assignors, self.settings.assignors[0])

    def heartbeat(self, group_id: str, beat: Beat, *, requires_member_id: bool) -> None:
        """ConsumerGroupHeartbeat; `beat.waiter` is a BeatReply and is called once, when the records of the event are replicated."""
        reply = beat.waiter
        try:
            check(beat, group_id, self.settings.assignors, requires_member_id=requires_member_id)
        except Refused as refused:
            reply(refused.result)
            return
        if not beat.member_id:
            beat = beat._replace(member_id=str(self._new_uuid()))
        self._enter(group_id, beat)

    def _enter(self, group_id: str, beat: Beat) -> None:
        """Hand a heartbeat over to its group, which may have to be converted first."""
        try:
            group = self._group_of(group_id, beat)
        except Refused as refused:
            beat.waiter(refused.result)
            return
        if isinstance(group, ConsumerGroup):
            self.machine.submit(group, Event(partial(on_heartbeat, group, beat), partial(_refuse, beat.waiter)))
            return
        waiting = self._upgrades.get(group)
        if waiting is not None:
            waiting.append(beat)
            return
        self._upgrades[group] = [beat]
        self.machine.track(self._upgrade(group))

    def without_news(
        self, group_id: str, member_id: str, epoch: int, instance_id: str | None, client_id: str, client_host: str
    ) -> ConsumerGroup | None:
        """The group of a heartbeat for which `renew` is all that is to do: it names nothing else, and there is no news. None otherwise."""
        group = self._groups.served(group_id)
        if not isinstance(group, ConsumerGroup) or not self.machine.is_idle(group) or not self.is_served:
            return None
        member = group.members.get(member_id)
        if member is None or not has_no_news(group, member, epoch, instance_id, client_id, client_host, self._cluster.topics):
            return None
        return group

    def renew(self, group: ConsumerGroup, member_id: str) -> int:
        """Begin the session timeout of a member anew. Returns the interval of its heartbeats, ms."""
        settings = self.machine.settings
        times = settings.times_of(group.group_id)
        self._runner.arm(group, MemberTimer(TimerKind.SESSION, member_id), times.session_timeout_ms)
        return interval_ms(times, settings, self.machine.members)

    def _group_of(self, group_id: str, beat: Beat) -> ConsumerGroup | ClassicGroup:
        """The group of a heartbeat; the first member makes it. It may be a classic group with members that is to be converted. Raises
        Refused."""
        error, group = self._groups.find(group_id)
        if error:
            raise Refused(error, error.message)
        if isinstance(group, ConsumerGroup):
            return group
        if beat.epoch != JOINING:
            kind = "Consumer group" if beat.epoch > JOINING else "Group"
            message = f"{kind} {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if group is None:
            made = ConsumerGroup(group_id)
            if not self._groups.make(made, f"{beat.client_id} ({beat.client_host})"):
                raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_ROOM)
            return made
        if isinstance(group, AssignedGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if group.state is GroupState.EMPTY:
            made = ConsumerGroup(group_id)
            self._replace(group, made)
            return made
        if not isinstance(group, ClassicGroup) or not may_upgrade(group, self.settings):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    def _replace(self, group: Group, made: ConsumerGroup) -> None:
        """Put a group of the new protocol in the place of another one, until the next event is written."""
        made.replaced = group
        self._groups.replace(group, made)
        self._runner.cancel_timers(group)

    async def _upgrade(self, group: ClassicGroup) -> None:
        """Convert a classic group with members, then hand over the heartbeats that wait."""
        refused: Refused | None = None
        try:
            await self._upgrade_in_thread(group)
        except Refused as error:
            refused = error
        except Exception:
            logger.exception("group %s: it cannot be converted to the new protocol", group.group_id)
            refused = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message)
        for beat in self._upgrades.pop(group):
            if refused is None:
                self._enter(group.group_id, beat)
            else:
                beat.waiter(refused.result)

    async def _upgrade_in_thread(self, group: ClassicGroup) -> None:
        """Replace a classic group unless it is another one already. The caller hands over an event in the same turn. Raises Refused."""
        group_id = group.group_id
        for _ in range(MOST_UPGRADES):
            before = before_upgrade(group)
            try:
                made, creation = await self.machine.in_thread(partial(upgraded, before, self._cluster.topics))
            except CustomAssignorError:
                message = (
                    f"Cannot upgrade classic group {group_id} to consumer group because an unsupported custom assignor is in use. Please "
                    "refer to the documentation or switch to a default assignor before re-attempting the upgrade."
                )
                logger.warning("group %s: it stays classic, because its assignments have data of a custom assignor", group_id)
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, message) from None
            except ProtocolError as error:
                message = (
                    f"Cannot upgrade the classic group {group_id} to consumer group because the embedded consumer protocol is malformed."
                )
                logger.warning("group %s: it cannot be converted to the new protocol: %s", group_id, error)
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, message) from None
            if self._groups.served(group_id) is not group or group.state is GroupState.EMPTY or not may_upgrade(group, self.settings):
                return
            if before_upgrade(group) == before:
                made.creation = creation
                logger.info("group %s: it is converted to the new protocol, with %d classic members", group_id, len(group.members))
                self._runner.run(group, send_away(group))
                self._replace(group, made)
                return
        raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"The members of the classic group {group_id} change all the time.")

    def become_classic(self, group: ConsumerGroup) -> ClassicGroup | None:
        """The classic group that a group without members becomes; its offsets stay. None if its records cannot be removed."""
        if not self.machine.bury(group):
            return None
        logger.info("group %s: it has no members, and becomes a classic group", group.group_id)
        classic = ClassicGroup(group.group_id, self._groups.settings, self._clock.now_ms())
        self._groups.replace(group, classic)
        return classic

    async def leave_protocol(self) -> None:
        """Without the feature, groups that have no members become classic ones. Others follow later.

        Called when the level has changed, and periodically for groups that are loaded later.
        """
        for group in self._groups:
            if isinstance(group, ConsumerGroup) and not self.machine.is_deciding(group):
                self._leave_protocol(group)
            await pause()

    def _leave_protocol(self, group: ConsumerGroup) -> None:
        """Make a classic group of a group without members if the cluster no longer has these groups."""
        if self.is_served or group.members or group.is_dead or self._groups.served(group.group_id) is not group:
            return
        classic = self.become_classic(group)
        if classic is not None and not classic.offsets and self._groups.forget(group.group_id, classic):
            classic.end(self._clock.now_ms())

    # -- classic members -----------------------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, join: Join) -> None:
        """JoinGroup; `join.waiter` is called once with a JoinResult."""
        join = join._replace(uuid=str(self._new_uuid()))
        reply = join.waiter

        def refuse(error: ErrorCode) -> None:
            reply(JoinResult(join.member_id, error))

        self.machine.submit(group, Event(partial(on_classic_join, group, join), refuse))

    def sync(self, group: ConsumerGroup, sync: Sync) -> None:
        """SyncGroup; `sync.waiter` is called once with a SyncResult."""
        reply = sync.waiter

        def decide(_: Context) -> list[ConsumerEffect]:
            return on_classic_sync(group, sync, self._cluster.names_by_id)

        self.machine.submit(group, Event(decide, lambda error: reply(SyncResult(error))))

    def classic_heartbeat(self, group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat."""
        error, effects = on_classic_heartbeat(group, member_id, group_instance_id, generation_id, self.machine.context_of(group))
        self._runner.run(group, effects)
        return error

    def leave(self, group: ConsumerGroup, leaving: Sequence[Leaving], reply: LeaveReply) -> None:
        """LeaveGroup; `reply` is called once with a LeaveResult."""
        self.machine.submit(group, Event(partial(on_leave, group, leaving, reply), lambda error: reply(LeaveResult(error))))


def _refuse(reply: BeatReply, error: ErrorCode) -> None:
    reply(BeatResult(error, error.message))
