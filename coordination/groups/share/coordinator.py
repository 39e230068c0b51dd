"""Receives the requests about share groups, and runs their state machines. `groups.coordinator.GroupCoordinator` owns the only instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial
from typing import Any

from ottla.coordination.groups.consumer.effects import Beat, BeatResult, Initialize
from ottla.coordination.groups.consumer.heartbeats import Refused
from ottla.coordination.groups.consumer.machine import ConsumerMachine, Event
from ottla.coordination.groups.consumer.members import JOINING
from ottla.coordination.groups.coordinated import CoordinatedGroups
from ottla.coordination.groups.group import Group
from ottla.coordination.groups.share.group import Initialized, ShareGroup
from ottla.coordination.groups.share.heartbeats import check, on_heartbeat, on_initialized
from ottla.coordination.groups.share.offsets import ShareOffsets, StateOfGroups
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.cluster import MetadataCache

FIRST_LEVEL = 1
"""The level of the feature from which on there are these groups."""


class ShareMachine(ConsumerMachine):
    """Runs the state machines of share groups."""

    __slots__ = ("_initializing", "_state")

    def __init__(self, state: StateOfGroups, *args: Any) -> None:
        super().__init__(*args)
        self._state = state
        self._initializing: set[ShareGroup] = set()
        """The groups whose last initialization has no result yet."""

    def carry_out(self, group: Any, effect: object) -> None:
        """Initialize partitions. A topic of which the group has partitions has grown, so that no record of the new ones is to be missed.

        One initialization of a group is in progress at a time: the second would begin anew what members have of the first already.
        """
        assert isinstance(effect, Initialize)
        if group in self._initializing:
            return
        self._initializing.add(group)
        partitions = effect.partitions
        grown = frozenset(topic for topic in partitions if topic in group.initialized)
        self._state.initialize(group.group_id, partitions, effect.epoch, grown, partial(self._on_initialized, group, partitions))

    def _on_initialized(self, group: ShareGroup, partitions: Initialized, is_done: bool) -> None:
        self._initializing.discard(group)
        self.submit(group, Event(partial(on_initialized, group, partitions, is_done)))


class ShareGroups:
    """See the module."""

    __slots__ = ("_groups", "_level", "machine", "offsets")

    def __init__(self, groups: CoordinatedGroups, machine: ShareMachine, level: Callable[[], int], state: StateOfGroups) -> None:
        """`level` returns the level of the feature `share.version`."""
        self._groups = groups
        self._level = level
        self.machine = machine
        self.offsets = ShareOffsets(machine, state)

    @property
    def is_served(self) -> bool:
        """Whether the cluster has these groups."""
        return self._level() >= FIRST_LEVEL

    def heartbeat(self, group_id: str, beat: Beat) -> None:
        """ShareGroupHeartbeat; `beat.waiter` is called once with a BeatResult, when the records of the event are replicated."""
        reply = beat.waiter
        try:
            check(beat, group_id)
            group = self._group_of(group_id, beat)
        except Refused as refused:
            reply(refused.result)
            return
        self.machine.submit(group, Event(partial(on_heartbeat, group, beat), lambda error: reply(BeatResult(error, error.message))))

    def _group_of(self, group_id: str, beat: Beat) -> ShareGroup:
        """The group of a heartbeat; the first member makes it. Raises Refused."""
        error, group = self._groups.find(group_id)
        if error:
            raise Refused(error, error.message)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if beat.epoch != JOINING:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        made = ShareGroup(group_id)
        self._groups.add(group_id, made)
        return made

    def describe(self, group_id: str) -> tuple[ErrorCode, str | None, ShareGroup | None]:
        """(error, message, group): the group as it is now."""
        error, group = self._groups.find(group_id)
        if error:
            return error, None, None
        if group is None or group.is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", None
        if not isinstance(group, ShareGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.", None
        return ErrorCode.NONE, None, group

    def initialized(self, group_id: str) -> tuple[ErrorCode, Initialized]:
        """(error, partitions): those whose state is initialized. There are none if there is no such share group."""
        error, group = self._groups.find(group_id)
        return error, group.initialized if isinstance(group, ShareGroup) else {}

    def find_to_change(self, group_id: str, is_made: bool) -> tuple[ErrorCode, str | None, ShareGroup | None]:
        """(error, message, group) for a change of offsets. The group is made if there is none, or that is an error."""
        error, message, group = self.describe(group_id)
        if group is None and is_made and self._groups.find(group_id) == (ErrorCode.NONE, None):
            group = ShareGroup(group_id)
            self._groups.add(group_id, group)
            return ErrorCode.NONE, None, group
        return error, message, group

    def delete_of_partitions(self, deleted: Iterable[TopicPartition], cluster: MetadataCache) -> Iterator[None]:
        """Topics were deleted: groups forget them, with a step between two pauses. The cluster does not have their ids any more."""
        names: set[str] = set()
        for topic, _ in deleted:
            names.add(topic)
            yield
        for owned in self._groups.partitions.values():
            if owned.is_loading:
                owned.before_served(partial(self._delete_of_topics, names, cluster))
        yield from self._delete_of_topics(names, cluster, self._groups)

    def _delete_of_topics(self, names: Set[str], cluster: MetadataCache, groups: Iterable[Group]) -> Iterator[None]:
        for group in groups:
            if isinstance(group, ShareGroup) and not group.is_dead:
                known = group.partitions_with_state().items()
                gone = {topic_id: each for topic_id, each in known if each[0] in names and topic_id not in cluster.names_by_id}
                if gone:
                    self.offsets.forget_topics(gone, group)
            yield
