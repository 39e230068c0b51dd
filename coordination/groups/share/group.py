"""Holds a share group: as a consumer group, but members share partitions and commit no offsets. Kafka's ShareGroup.

A partition is assigned when its state at the share coordinator is initialized; only then members may fetch it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.coordination.groups.consumer.group import AssignedGroup
from ottla.coordination.groups.consumer.members import Owned
from ottla.coordination.groups.consumer.records import Pair, Record, StatePartitions
from ottla.coordination.groups.consumer.topics import Topics, partition_count
from ottla.coordination.groups.group import Committer, Expiry, GroupState
from ottla.coordination.groups.share.records import pairs_of
from ottla.coordination.partitions.effects import Arm
from ottla.protocol.errors import ErrorCode
from ottla.protocol.uuid import ZERO_UUID

SHARE: Final = "share"
"""The type of these groups, as ListGroups names it, and the type of their protocol."""

SHARE_STATES: Final = (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD)
"""The states of these groups."""

Initialized = Mapping[bytes, tuple[str, frozenset[int]]]
"""By topic id, the name of the topic, and partitions."""


class ShareGroup(AssignedGroup):
    """See the module."""

    __slots__ = ("_assignable", "_assigned", "changing", "initialized", "initializing", "initializing_pause_ms", "initializing_since_ms")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.initialized: Initialized = {}
        self.initializing: Initialized = {}
        self.initializing_since_ms: int | None = None
        """When this broker has last asked for an initialization, or has learnt that it failed; None if it has not asked, or it is done."""
        self.initializing_pause_ms = 0
        """Time from then on until it asks again, ms."""
        self.changing = asyncio.Lock()
        """Held while an administrator moves the group or deletes its offsets. Nothing is initialized for members meanwhile."""
        self._assignable: tuple[Initialized, Topics, Topics] | None = None
        """The initialized partitions and the topics of the last `assignable`, and its result: each heartbeat asks for it."""
        self._assigned: tuple[Initialized, Topics, int] | None = None
        """The initialized partitions, the topics and the epoch of the target for which `has_unassigned` was last false."""

    def apply(self, record: Record) -> None:
        """Change the group as a record says."""
        if isinstance(record, StatePartitions):
            self.initializing, self.initialized = record.initializing, record.initialized
        else:
            super().apply(record)

    def pairs_of(self, records: Iterable[Record]) -> list[Pair]:
        """The keys and values of records of the group."""
        return pairs_of(self.group_id, records)

    def tombstones(self) -> list[bytes]:
        """The keys of the group's records, those of its members first."""
        state = [StatePartitions({}, {}, is_gone=True)] if self.initialized or self.initializing else []
        return [key for key, _ in self.pairs_of(state)] + super().tombstones()

    def _take(self, owned: Owned, epoch: int) -> None:
        """A partition has no owner: members share it."""

    def _release(self, owned: Owned) -> None:
        """See `_take`."""

    def _current_state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def protocol_type(self) -> str:
        """The type of the protocol of all these groups."""
        return SHARE

    @property
    def group_type(self) -> str:
        """The type of the group, as ListGroups shows it."""
        return SHARE

    def on_commit(self, committer: Committer) -> tuple[ErrorCode, list[Arm]]:
        """A share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND, []

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """See `on_commit`."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_deletion(self) -> ErrorCode:
        """See `on_commit`."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def expiry(self) -> Expiry | None:
        """A share group without members stays: the positions of its partitions would be lost."""
        return None

    # -- state at the share coordinator ----------------------------------------------------------------------------------------

    def assignable(self, topics: Topics) -> Topics:
        """The topics of the cluster as far as their partitions are initialized."""
        seen = self._assignable
        if seen is not None and seen[0] is self.initialized and seen[1] is topics:
            return seen[2]
        found = {}
        for topic_id, (name, indexes) in self.initialized.items():
            image = topics.get(name)
            if image is not None and image.topic_id == topic_id:
                partitions = {index: state for index, state in image.partitions.items() if index in indexes}
                if partitions:
                    found[name] = image._replace(partitions=partitions)
        self._assignable = self.initialized, topics, found
        return found

    def has_unassigned(self, topics: Topics) -> bool:
        """Whether the target lacks partitions that are initialized and to which members subscribe."""
        seen = self._assigned
        if seen is not None and seen[0] is self.initialized and seen[1] is topics and seen[2] == self.target_epoch:
            return False
        assigned: dict[bytes, set[int]] = {}
        for part in self.target.values():
            for topic_id, indexes in part.items():
                assigned.setdefault(topic_id, set()).update(indexes)
        subscribed = self.subscribed_topics()
        for name, image in self.assignable(topics).items():
            if name in subscribed and not assigned.get(image.topic_id, set()).issuperset(image.partitions):
                return True
        self._assigned = self.initialized, topics, self.target_epoch
        return False

    def partitions_with_state(self) -> dict[bytes, tuple[str, frozenset[int]]]:
        """The partitions for which an initialization is done or begun."""
        return joined(self.initialized, self.initializing)

    def uninitialized(self, names: Iterable[str], topics: Topics) -> dict[bytes, tuple[str, frozenset[int]]]:
        """The partitions of these topics that are still to be initialized, in the order of the names."""
        found = {}
        for name in sorted(names):
            image = topics.get(name)
            if image is None or image.topic_id == ZERO_UUID:
                continue
            _, known = self.initialized.get(image.topic_id, (name, frozenset()))
            missing = frozenset(range(partition_count(image))) - known
            if missing:
                found[image.topic_id] = name, missing
        return found


def joined(one: Initialized, other: Initialized) -> dict[bytes, tuple[str, frozenset[int]]]:
    """The partitions of both."""
    found = dict(one)
    for topic_id, (name, indexes) in other.items():
        found[topic_id] = name, found.get(topic_id, (name, frozenset()))[1] | indexes
    return found
