"""Holds a classic consumer group: its members, its generation and its state. Kafka's GroupMetadata.

The class keeps plain data consistent. The rules of the protocol are in `rebalance`, `syncing` and `membership`, which alone
change a group. A group knows no clock, no timer and no connection: a member that waits holds an opaque waiter, which an `effects.Reply`
gives back.

Invariants: `protocol_votes[p]` is the number of members that support p, `preferences[p]` of those that support the protocols p in this
order; `metadata` has the bytes of the names and protocols of all members, of the pending ids, and `assigned_bytes`; `join_waiters` and
`newcomers` name members only; a member id is a member or pending, never both; a group without members has no leader. A change of one member
costs the same in a large group as in a small one; only a rebalance visits all members.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple, TypeVar

from ottla.coordination.groups.group import Committer, Expiry, GroupState
from ottla.coordination.groups.metadata_bytes import MEMBER_BYTES, PENDING_BYTES, MetadataBytes, name_bytes
from ottla.coordination.groups.offsets import GroupOffsets
from ottla.coordination.groups.records import FIRST_VALUE_WITH_STATIC_MEMBERS, group_key
from ottla.coordination.groups.subscriptions import topics_at_once, topics_of
from ottla.coordination.partitions.effects import Arm
from ottla.protocol.errors import ErrorCode
from ottla.replication.waiting.timing_wheel import TimerTask

logger = logging.getLogger(__name__)

_Key = TypeVar("_Key")

CLASSIC = "classic"
"""The type of these groups, as ListGroups names it."""

READ_AT_ONCE: Final = 16 * 1024
"""Size of the subscriptions of a group that are read without a pause, bytes."""

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
NO_MEMBER_ID = ""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of the protocols that a member supports, the preferred one first."""

MemberMetadata = tuple[str, str | None, bytes]
"""(member id, group.instance.id, metadata in the chosen protocol). A plain tuple: a leader gets thousands at once."""


_PREVIOUS = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


CLASSIC_STATES = tuple(_PREVIOUS)
"""The states of classic groups."""


class GroupSettings(NamedTuple):
    """The values of `group.*` in the broker's configuration, and the versions of the records in the log (`group_value_version`)."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    group_value_version: int = 3
    offset_value_version: int = 3

    def refuses(self, group_instance_id: str | None) -> bool:
        """Whether this is a static member, and records cannot say so: the cluster may have coordinators older than 2.3, which would treat
        the member as a dynamic one."""
        return group_instance_id is not None and self.group_value_version < FIRST_VALUE_WITH_STATIC_MEMBERS


class Member:
    """One member. `sync_waiter` waits for the answer to its SyncGroup."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "has_all_protocols",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "record_part",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.has_all_protocols = True
        """False for a member from the log, which has one of its protocols, until it joins again."""
        self.assignment = assignment
        self.sync_waiter: object | None = None
        self.record_part: tuple[str | None, bytes, bytes] | None = None
        """The member's part of the group's record, from `records.member_part`; None when it has to be built again. It is built when a
        member joins, because soon afterwards the record is written for all members at once.
        """

    @property
    def name_bytes(self) -> int:
        """The memory for its names."""
        return name_bytes(self.member_id, self.client_id, self.group_instance_id)

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata that the member sent for a protocol that it supports."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise ValueError(f"member {self.member_id} does not support protocol {protocol}")

    @property
    def is_static(self) -> bool:
        """Whether it has a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None


class ClassicGroup:
    """See the module. Implements `group.Group`."""

    __slots__ = (
        "_has_read_topics",
        "_topics",
        "assigned_bytes",
        "assigned_generation_id",
        "generation_id",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "join_waiters",
        "leader_id",
        "members",
        "metadata",
        "new_member_added",
        "newcomers",
        "offsets",
        "pending_members",
        "pending_syncs",
        "preferences",
        "protocol_name",
        "protocol_type",
        "protocol_votes",
        "settings",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscriptions",
        "timers",
    )

    def __init__(self, group_id: str, settings: GroupSettings, now_ms: int, state: GroupState = GroupState.EMPTY) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = state
        self.state_timestamp_ms: int | None = now_ms
        self.generation_id = 0
        self.assigned_generation_id = 0
        """The last generation whose assignment the leader has sent."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # A plain dict passes all who left before it finds the first who stayed: a crowd that leaves would take the square of its number.
        self.members: OrderedDict[str, Member] = OrderedDict()
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        """The member ids that clients were given and have not joined with. Only `add_pending` and `forget_pending` change the set."""
        self.pending_syncs: set[str] = set()
        self.join_waiters: dict[str, object] = {}
        """The waiters for answers to JoinGroup, by member. The end of a rebalance removes all of them at once."""
        self.newcomers: dict[str, None] = {}
        """The members whose first rebalance is not complete. An empty set would take four times the memory, in every group."""
        self.protocol_votes: dict[str, int] = {}
        self.preferences: dict[tuple[str, ...], int] = {}
        self.subscriptions: frozenset[bytes] | None = None
        """The distinct metadata of the members in the chosen protocol at the beginning of the generation; None before the first."""
        self._topics: frozenset[str] | None = None
        self._has_read_topics = False
        """Whether `_topics` are those of the subscriptions; None if these cannot be read."""
        self.metadata = MetadataBytes()
        self.assigned_bytes = 0
        """The size of the assignments that were stored last, or are being stored. It counts until the next ones: those have room."""
        self.new_member_added = False
        self.initial_delay_ms: int | None = None
        """The current delay while the first rebalance of an empty group waits for more members."""
        self.initial_remaining_ms = 0
        self.offsets = GroupOffsets()
        self.timers: dict[Hashable, TimerTask] = {}

    # -- state -----------------------------------------------------------------------------------------------------------

    def session_key(self, member_id: str) -> Hashable:
        """The key of the timer of a member's session."""
        return member_id

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter `state`, which must be allowed from the current one."""
        assert self.state in _PREVIOUS[state], f"group {self.group_id}: from {self.state.value} to {state.value}"
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def group_type(self) -> str:
        """The type of the group, as ListGroups shows it."""
        return CLASSIC

    @property
    def is_dead(self) -> bool:
        """Whether the group is dead: it was deleted, or moved to another coordinator."""
        return self.state is GroupState.DEAD

    def end(self, now_ms: int) -> None:
        """The group is dead from now on."""
        self.transition_to(GroupState.DEAD, now_ms)

    def tombstones(self) -> list[bytes]:
        """The key of the group's metadata, which is stored with its first generation."""
        return [group_key(self.group_id)] if self.generation_id > 0 else []

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin now."""
        return self.state in _PREVIOUS[GroupState.PREPARING_REBALANCE]

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members speak the consumer protocol, which the broker can read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # -- members ---------------------------------------------------------------------------------------------------------

    def add_pending(self, member_id: str) -> None:
        """A client was given this new member id, and is to join with it."""
        self.pending_members.add(member_id)
        self.metadata.change(name_bytes(member_id))
        self.metadata.change_objects(PENDING_BYTES)

    def forget_pending(self, member_id: str) -> None:
        """The member id is no longer pending, if it was."""
        if member_id in self.pending_members:
            self.pending_members.remove(member_id)
            self.metadata.change(-name_bytes(member_id))
            self.metadata.change_objects(-PENDING_BYTES)

    def add(self, member: Member, protocol_type: str, waiter: object | None) -> None:
        """A new member; the first is leader and decides the protocol type."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.forget_pending(member.member_id)
        self.members[member.member_id] = member
        self._count_member(member, 1)
        self._vote(member.protocols, 1)
        self.count_assignments(self.assigned_bytes + len(member.assignment))
        if waiter is not None:
            self.join_waiters[member.member_id] = waiter

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or pending member. If it was the leader, another member becomes leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_member(member, -1)
            self._vote(member.protocols, -1)
            self.join_waiters.pop(member_id, None)
            self.newcomers.pop(member_id, None)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.pending_syncs.discard(member_id)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """A static member continues under a new id, and remains leader if it was."""
        assert member.group_instance_id is not None
        old = member.member_id
        del self.members[old]
        self.metadata.change(name_bytes(member_id) - name_bytes(old))
        member.member_id = member_id
        member.record_part = None
        self.members[member_id] = member
        if self.leader_id == old:
            self.leader_id = member_id
        if old in self.pending_syncs:
            self.pending_syncs.discard(old)
            self.pending_syncs.add(member_id)
        if old in self.newcomers:
            del self.newcomers[old]
            self.newcomers[member_id] = None
        if old in self.join_waiters:
            self.join_waiters[member_id] = self.join_waiters.pop(old)
        self.static_members[member.group_instance_id] = member_id

    def update(
        self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int, waiter: object | None
    ) -> None:
        """Update the data of a member that joins again. The waiter of its earlier JoinGroup must have been answered before."""
        member.has_all_protocols = True
        if protocols != member.protocols:
            self._vote(member.protocols, -1)
            member.protocols = protocols
            self._vote(protocols, 1)
            member.record_part = None
        if (rebalance_timeout_ms, session_timeout_ms) != (member.rebalance_timeout_ms, member.session_timeout_ms):
            member.rebalance_timeout_ms = rebalance_timeout_ms
            member.session_timeout_ms = session_timeout_ms
            member.record_part = None
        if waiter is None:
            self.join_waiters.pop(member.member_id, None)
        else:
            self.join_waiters[member.member_id] = waiter

    def count_assignments(self, size: int) -> None:
        """The assignments of all members have this size."""
        self.metadata.change(size - self.assigned_bytes)
        self.assigned_bytes = size

    def take_join_waiter(self, member: Member) -> object | None:
        """Remove and return the waiter for the member's JoinGroup, if there is one."""
        return self.join_waiters.pop(member.member_id, None)

    def _count_member(self, member: Member, change: int) -> None:
        self.metadata.change(change * member.name_bytes)
        self.metadata.change_objects(change * MEMBER_BYTES)

    def _vote(self, protocols: Protocols, change: int) -> None:
        self.metadata.change(change * size_of(protocols))
        names = tuple([name for name, _ in protocols])
        _add(self.preferences, names, change)
        for name in names:
            _add(self.protocol_votes, name, change)

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members have joined the rebalance."""
        return len(self.members) == len(self.join_waiters) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest timeout that any member requested; never negative."""
        return max(0, max([member.rebalance_timeout_ms for member in self.members.values()], default=0))

    # -- protocols -------------------------------------------------------------------------------------------------------

    def supports_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group: it shares one with all others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self.protocol_votes.get(name, 0) == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol that most members prefer, among those that all members support."""
        count = len(self.members)
        candidates = {name for name, votes in self.protocol_votes.items() if votes == count}
        votes: dict[str, int] = {}
        for names, voters in self.preferences.items():
            choice = next(name for name in names if name in candidates)
            votes[choice] = votes.get(choice, 0) + voters
        return max(votes, key=votes.__getitem__)

    def next_generation(self, now_ms: int) -> None:
        """All members have joined: the next generation begins, in CompletingRebalance, or in Empty without members."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.count_assignments(0)
            self.transition_to(GroupState.EMPTY, now_ms)
        self.remember_subscriptions()
        self.offsets.by_consumers = self.offsets.by_transactions = False
        self.pending_syncs.clear()

    def remember_subscriptions(self) -> None:
        """Keep the subscriptions of the members in this generation."""
        self.subscriptions = frozenset(self._metadata()) if self.protocol_name is not None else frozenset()
        self.forget_subscriptions()

    # -- offsets -----------------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the one that its group.instance.id belongs to now."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(self, member_id: str, group_instance_id: str | None, generation_id: int, *, is_transactional: bool) -> ErrorCode:
        """Whether the sender may commit offsets: a member of this generation, or any sender while the group has no members."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation_id >= 0 or member_id != NO_MEMBER_ID or group_instance_id is not None:
            error = self.check_member(member_id, group_instance_id)
            if error:
                return error
            return ErrorCode.NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION
        if not is_transactional and self.state is not GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Any sender may fetch offsets: classic members do not say who they are."""
        return ErrorCode.NONE

    def on_commit(self, committer: Committer) -> tuple[ErrorCode, list[Arm]]:
        """Whether the sender may commit offsets now, and the effect on the member's session. A commit in a transaction comes from the
        producer: it does not extend the member's session, and is allowed during a rebalance.
        """
        member_id, group_instance_id, generation_id, is_transactional, _, _ = committer
        error = self.check_commit(member_id, group_instance_id, generation_id, is_transactional=is_transactional)
        if error or is_transactional:
            return error, []
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS, []
        member = self.members.get(member_id)
        return ErrorCode.NONE, [] if member is None else [Arm(member_id, member.session_timeout_ms)]

    def check_offset_deletion(self) -> ErrorCode:
        """Whether offsets may be deleted: the topics of the members are known, or there are no members."""
        return ErrorCode.NONE if self.is_consumer_group or self.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def expiry(self) -> Expiry | None:
        """The rule for the age of the group's offsets (KIP-211); None while none of them may expire."""
        if self.protocol_type is None:
            return Expiry(None)
        if self.state is GroupState.EMPTY:
            return Expiry(self.state_timestamp_ms)
        topics = self.subscribed_topics() if self.is_consumer_group and self.state is GroupState.STABLE else None
        return None if topics is None else Expiry(None, topics)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members of a consumer group subscribe to; None when they are unknown, or many and not read yet."""
        if self.state is GroupState.EMPTY:
            return frozenset()
        if not self.is_consumer_group or self.subscriptions is None:
            return None
        if self._has_read_topics:
            return self._topics
        return None if self._has_many_topics else self._known(topics_at_once(self.subscriptions))

    @property
    def _has_many_topics(self) -> bool:
        return sum(map(len, self.subscriptions or ())) > READ_AT_ONCE

    def read_subscriptions(self) -> Iterator[None]:
        """Read the topics that members subscribe to in this generation, with a step between two pauses, if they are many."""
        subscriptions = self.subscriptions
        if self._has_read_topics or not self.is_consumer_group or subscriptions is None or not self._has_many_topics:
            return
        topics = self._known((yield from topics_of(subscriptions)))
        if subscriptions is self.subscriptions:  # no other generation has begun
            self._topics, self._has_read_topics = topics, True

    def forget_subscriptions(self) -> None:
        """Free the topics that were read: they take more memory than the subscriptions, which have a limit."""
        self._topics, self._has_read_topics = None, False

    def _known(self, topics: frozenset[str] | None) -> frozenset[str] | None:
        if topics is None:
            logger.warning("the subscriptions of group %s cannot be read; its offsets are kept until it is empty", self.group_id)
        return topics

    def member_metadata(self) -> list[MemberMetadata]:
        """The metadata of all members in the chosen protocol, for the leader."""
        return [
            (member_id, member.group_instance_id, metadata)
            for (member_id, member), metadata in zip(self.members.items(), self._metadata(), strict=True)
        ]

    def _metadata(self) -> list[bytes]:
        """The metadata of every member in the chosen protocol, which is usually its first: 0.06 µs each."""
        name = self.protocol_name
        return [member.protocols[0][1] if member.protocols[0][0] == name else member.metadata(name) for member in self.members.values()]


def size_of(protocols: Protocols) -> int:
    """The memory for the protocols of a member, bytes; names are counted by characters."""
    return sum([len(name) + len(metadata) for name, metadata in protocols])


def _add(counts: dict[_Key, int], key: _Key, change: int) -> None:
    """Count; an entry with count 0 is removed."""
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
