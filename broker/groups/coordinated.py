"""Which groups this broker coordinates: those whose partition of `__consumer_offsets` it leads.

The partition of a group is Kafka's `abs(hashCode) % partitions`, so any broker and client can tell the coordinator. Owned by the
coordinator; `elections` adds and removes partitions, everybody else looks groups up here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from broker.groups.group import Group, GroupSettings
from broker.request.internal_topics import GROUP_METADATA_TOPIC
from controller.znodes.java_order import java_hash
from protocol.errors import ErrorCode
from replication.ports.cluster import MetadataCache


class OffsetsPartition:
    """One partition of `__consumer_offsets` that this broker leads, and the groups in it. While it loads, its groups are not served."""

    __slots__ = ("groups", "index", "is_loading", "leader_epoch", "loaded_end_offset", "open_transactions")

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.loaded_end_offset = 0
        """Where the log ended that was loaded. What lies above the high watermark may be lost with this broker yet."""
        self.groups: dict[str, Group] = {}
        self.open_transactions: dict[int, set[str]] = {}
        """The groups that a producer has committed offsets to in a transaction that is still open, by producer id."""


class CoordinatedGroups:
    """See the module."""

    __slots__ = ("_cluster", "_configured_partitions", "_partition_count", "is_active", "partitions", "settings")

    def __init__(self, cluster: MetadataCache, settings: GroupSettings, configured_partitions: int) -> None:
        self.settings = settings
        self.partitions: dict[int, OffsetsPartition] = {}
        self.is_active = False
        self._cluster = cluster
        self._configured_partitions = configured_partitions
        self._partition_count: int | None = None

    @property
    def partition_count(self) -> int:
        """Of `__consumer_offsets` as it was when first seen: adding partitions to it would scatter the groups."""
        image = self._cluster.topics.get(GROUP_METADATA_TOPIC)
        if image is None:
            self._partition_count = None
            return self._configured_partitions
        if self._partition_count is None:
            self._partition_count = len(image.partitions)
        return self._partition_count

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group."""
        return absolute_hash(group_id) % self.partition_count

    def check(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Whether this broker answers for the group. Only some requests know the group with the empty name."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        owned = self.partitions.get(self.partition_for(group_id))
        if owned is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.is_loading else ErrorCode.NONE

    def find(self, group_id: str, *, may_be_empty: bool = False) -> tuple[ErrorCode, Group | None]:
        """What `check` and then `get` say, in one step: heartbeats and commits are many."""
        if not self.is_active or not group_id:
            error = self.check(group_id, may_be_empty=may_be_empty)
            return error, None if error else self.get(group_id)
        owned = self.partitions.get(self.partition_for(group_id))
        if owned is None:
            return ErrorCode.NOT_COORDINATOR, None
        if owned.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        return ErrorCode.NONE, owned.groups.get(group_id)

    def get(self, group_id: str) -> Group | None:
        """The group, if it is coordinated here."""
        owned = self.partitions.get(self.partition_for(group_id))
        return None if owned is None else owned.groups.get(group_id)

    def get_or_create(self, group_id: str, now_ms: int) -> Group:
        """The group, which `check` allowed; made when there is none."""
        groups = self.partitions[self.partition_for(group_id)].groups
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = Group(group_id, self.settings, now_ms)
        return group

    def forget(self, group: Group) -> bool:
        """The group is dead; False when it was not known here any more."""
        owned = self.partitions.get(self.partition_for(group.group_id))
        if owned is None or owned.groups.get(group.group_id) is not group:
            return False
        del owned.groups[group.group_id]
        return True

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded."""
        return any(owned.is_loading for owned in self.partitions.values())

    def __iter__(self) -> Iterator[Group]:
        for owned in self.partitions.values():
            yield from owned.groups.values()


@lru_cache(maxsize=4096)
def absolute_hash(text: str) -> int:
    """Kafka's Utils.abs of String.hashCode: the most negative hash becomes 0."""
    value = java_hash(text)
    if value < 1 << 31:
        return value
    return (1 << 32) - value if value > 1 << 31 else 0
