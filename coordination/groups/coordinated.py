"""Tracks the groups that this broker coordinates: those whose partition of `__consumer_offsets` it leads."""

from __future__ import annotations

from ottla.coordination.groups.classic_group import ClassicGroup, GroupSettings
from ottla.coordination.groups.group import Group
from ottla.coordination.groups.metadata_bytes import GROUP_BYTES, MetadataBudget, name_bytes
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordination.partitions.owned import OwnedStates
from ottla.protocol.errors import ErrorCode
from ottla.replication.ports.cluster import MetadataCache


class CoordinatedGroups(OwnedStates[Group]):
    """See the module. Keys are group ids; only some requests accept the empty group id."""

    __slots__ = ("_in_transactions", "metadata", "settings")

    def __init__(self, cluster: MetadataCache, settings: GroupSettings, configured_partitions: int, metadata: MetadataBudget) -> None:
        super().__init__(GROUP_METADATA_TOPIC, cluster, configured_partitions, ErrorCode.INVALID_GROUP_ID)
        self.settings = settings
        self.metadata = metadata
        """The memory of the members of all these groups."""
        self._in_transactions: dict[int, set[Group]] = {}
        """By producer id, the groups with offsets in the producer's open transaction; no empty sets."""

    def add(self, key: str, state: Group) -> None:
        """Keep a new group."""
        super().add(key, state)
        state.metadata.count_in(self.metadata)

    def make(self, group: Group, client: str) -> bool:
        """Keep a new group, whose first member this client is to be. False if there is no room for it, which is logged.

        The group counts until its first commit: from then on it is kept as long as the log has offsets of it.
        """
        size = GROUP_BYTES + name_bytes(group.group_id)
        if self.metadata.refuse(size, group.group_id, client):
            return False
        group.metadata.change_group(size)
        self.add(group.group_id, group)
        return True

    def forget(self, key: str, state: Group) -> bool:
        """Drop a group; False if it was already dropped."""
        state.metadata.count_out()
        return super().forget(key, state)

    def get_or_create(self, group_id: str, now_ms: int) -> Group:
        """The group, which `check` allowed; a classic one is made for a commit when there is none."""
        group = self.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, self.settings, now_ms)
            self.add(group_id, group)
        return group

    def topic_id(self, name: str) -> bytes:
        """The id of a topic of the cluster; ZERO_UUID if it is unknown."""
        return self._cluster.topic_id(name)

    def replace(self, old: Group, new: Group) -> None:
        """A group continues as one of another type, with its offsets."""
        assert old.group_id == new.group_id
        new.offsets = old.offsets
        for producer_id in old.offsets.transactional:
            self.enter_transaction(producer_id, new)
            self._leave(producer_id, old)
        new.metadata.change_group(old.metadata.of_group)
        old.metadata.change_group(0)
        old.metadata.count_out()
        self.add(new.group_id, new)

    def enter_transaction(self, producer_id: int, group: Group) -> None:
        """Remember that the group has offsets in the open transaction of a producer."""
        self._in_transactions.setdefault(producer_id, set()).add(group)

    def end_transaction(self, producer_id: int, index: int) -> list[Group]:
        """Forget that groups of a partition have offsets in the producer's transaction, and return these groups."""
        owned = self.partitions.get(index)
        groups = self._in_transactions.get(producer_id)
        if owned is None or groups is None:
            return []
        ended = [group for group in groups if owned.states.get(group.group_id) is group]
        for group in ended:
            self._leave(producer_id, group)
        return ended

    def leave_transactions(self, group: Group) -> None:
        """Forget a group that is no longer coordinated here."""
        for producer_id in group.offsets.transactional:
            self._leave(producer_id, group)

    def _leave(self, producer_id: int, group: Group) -> None:
        groups = self._in_transactions.get(producer_id)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._in_transactions[producer_id]
