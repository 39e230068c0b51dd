"""Receives the requests about consumer groups of the new protocol: checks that this broker coordinates the group, and hands over events.

`ottla.broker.groups.coordinator.GroupCoordinator` owns the only instance.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

from ottla.broker.coordination.runner import EffectRunner
from ottla.broker.coordination.topic_log import TopicLog
from ottla.broker.groups.consumer.effects import Beat, BeatResult
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.heartbeats import Refused, check, on_heartbeat
from ottla.broker.groups.consumer.machine import ConsumerMachine, Event, Pause
from ottla.broker.groups.consumer.members import JOINING
from ottla.broker.groups.consumer.settings import ConsumerSettings
from ottla.broker.groups.consumer.subscriptions import preferred
from ottla.broker.groups.coordinated import CoordinatedGroups
from ottla.broker.groups.group import Group, GroupState
from ottla.protocol.errors import ErrorCode
from ottla.replication.ports.cluster import MetadataCache
from ottla.storage.disk.clock import Clock

BeatReply = Callable[[BeatResult], None]

FIRST_LEVEL: Final = 1
"""The level of the feature from which on there are these groups."""


class ConsumerGroups:
    """See the module."""

    __slots__ = ("_groups", "_level", "_new_uuid", "machine")

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
        pause: Pause,
        level: Callable[[], int],
    ) -> None:
        """`level` returns the level of the feature `group.version`."""
        self._level = level
        self._groups = groups
        self._new_uuid = new_uuid
        self.machine = ConsumerMachine(groups, log, runner, cluster, clock, workers, settings, pause)

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
        reply: BeatReply = beat.waiter  # type: ignore[assignment]  # opaque to the state machine, ours to know
        try:
            check(beat, group_id, self.settings.assignors, requires_member_id=requires_member_id)
            group = self._group_of(group_id, beat)
        except Refused as refused:
            reply(refused.result)
            return
        if not beat.member_id:
            beat = beat._replace(member_id=self._new_member_id())

        def refuse(error: ErrorCode) -> None:
            reply(BeatResult(error, error.message))

        self.machine.submit(group, Event(partial(on_heartbeat, group, beat), refuse))

    def _new_member_id(self) -> str:
        return urlsafe_b64encode(self._new_uuid().bytes).decode().rstrip("=")  # type: ignore[attr-defined]  # a UUID

    def _group_of(self, group_id: str, beat: Beat) -> ConsumerGroup:
        """The group of a heartbeat; the first member makes it. Raises Refused."""
        error, group = self._groups.find(group_id)
        if error:
            raise Refused(error, error.message)
        if isinstance(group, ConsumerGroup):
            return group
        if beat.epoch != JOINING:
            kind = "Consumer group" if beat.epoch > JOINING else "Group"
            message = f"{kind} {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, message)
        made = ConsumerGroup(group_id)
        if group is None:
            self._groups.add(group_id, made)
        elif group.state is GroupState.EMPTY:
            made.replaced = group
            self._groups.replace(group, made)
        else:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return made
