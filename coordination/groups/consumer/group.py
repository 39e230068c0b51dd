"""Holds a group whose partitions the broker assigns: its members, its target assignment and its epochs. Kafka's ModernGroup.

Only the records of the group change it, one at a time (`apply`): records of an event as soon as the log has them, and records of a log that
is loaded in the order of their kinds. So a group that was loaded equals the group that wrote the records. The rules of the protocol are in
`heartbeats`, `reconciliation`, `targets` and `classic_members`.

Epochs: `epoch` rises with every change of members, subscriptions or topics; `target_epoch` is the epoch for which the target was computed;
each member has the epoch of the target that it has reached.

Invariants: `static_members`, `names`, `assignors`, `owner_epochs` and `classic_members` agree with `members`; no partition has two owners.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ottla.coordination.groups.classic_group import NO_GENERATION, NO_MEMBER_ID
from ottla.coordination.groups.consumer.assignors import Assignment
from ottla.coordination.groups.consumer.members import Member, Owned
from ottla.coordination.groups.consumer.reconciliation import FREE
from ottla.coordination.groups.consumer.records import (
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Pair,
    Record,
    Resolved,
    ResolvedRegex,
    TargetEpoch,
    TargetMember,
    TopicsOfOldRelease,
    pairs_of,
)
from ottla.coordination.groups.consumer.timers import MemberTimer, TimerKind
from ottla.coordination.groups.group import Committer, Expiry, Group, GroupState
from ottla.coordination.groups.metadata_bytes import MEMBER_BYTES, MetadataBytes
from ottla.coordination.groups.offsets import GroupOffsets
from ottla.coordination.partitions.effects import Arm
from ottla.protocol.errors import ErrorCode
from ottla.replication.waiting.timing_wheel import TimerTask

CONSUMER: Final = "consumer"
"""The type of these groups, as ListGroups names it, and the type of their protocol."""

CONSUMER_STATES: Final = (GroupState.EMPTY, GroupState.ASSIGNING, GroupState.RECONCILING, GroupState.STABLE, GroupState.DEAD)
"""The states of these groups."""


class AssignedGroup:
    """See the module. Implements `group.Group`; the methods are those of a consumer group, and share groups have some of their own."""

    __slots__ = (
        "_state",
        "_subscribed",
        "assignors",
        "classic_members",
        "classic_protocols",
        "counted_members",
        "creation",
        "epoch",
        "group_id",
        "has_topics_of_old_release",
        "is_dead",
        "is_resolving",
        "known_topics",
        "members",
        "metadata",
        "metadata_hash",
        "names",
        "offsets",
        "owner_epochs",
        "regex_users",
        "regexes",
        "replaced",
        "resolved_ms",
        "resolved_topics",
        "static_members",
        "target",
        "target_epoch",
        "target_ms",
        "timers",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata = MetadataBytes()
        self.metadata_hash = 0
        """A hash of the subscribed topics, for which the epoch is valid; 0 for none."""
        self.target_epoch = 0
        self.target_ms = 0
        """The time at which the target was computed."""
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        self.owner_epochs: dict[bytes, dict[int, int]] = {}
        """By topic id and partition, the epoch of the member that has the partition."""
        self.names: dict[str, int] = {}
        """How many members subscribe to a topic by its name."""
        self.regexes: dict[str, Resolved] = {}
        self.regex_users: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.classic_members = 0
        """How many members have the classic protocol."""
        self.classic_protocols: dict[str, int] = {}
        self.counted_members = 0
        """How many members the machine of the group has counted."""
        self.has_topics_of_old_release = False
        self.known_topics: Mapping[str, object] | None = None
        """The topics of the cluster for which `metadata_hash` was compared; None to compare it again."""
        self.is_resolving = False
        """Whether a thread evaluates the regular expressions."""
        self.resolved_ms = 0
        """The time of the last evaluation."""
        self.resolved_topics: Mapping[str, object] | None = None
        """The topics of the cluster at the last evaluation."""
        self.replaced: Group | None = None
        """The group of another type that this one replaces, until the first records are in the log."""
        self.creation: Sequence[Pair] = ()
        """The records of what this group has of the group that it replaces; they are written with the first others."""
        self.offsets = GroupOffsets()
        self.timers: dict[Hashable, TimerTask] = {}
        self.is_dead = False
        """Whether the group was deleted, converted, or moved to another coordinator."""
        self._state: GroupState | None = GroupState.EMPTY
        self._subscribed: frozenset[str] | None = frozenset()

    # -- changes -----------------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Change the group as a record says."""
        self._state = None
        if isinstance(record, CurrentAssignment):
            self._apply_current(record)
        elif isinstance(record, TargetMember):
            if record.target is None:
                self.target.pop(record.member_id, None)
            else:
                self.target[record.member_id] = record.target
        elif isinstance(record, MemberMetadata):
            self._apply_metadata(record)
        elif isinstance(record, GroupEpoch):
            self.epoch, self.metadata_hash = record.epoch or 0, record.metadata_hash
        elif isinstance(record, TargetEpoch):
            self.target_epoch, self.target_ms = record.epoch or 0, record.computed_ms
        elif isinstance(record, ResolvedRegex):
            self._subscribed = None
            if record.resolved is None:
                self.regexes.pop(record.regex, None)
            else:
                self.regexes[record.regex] = record.resolved
        elif isinstance(record, TopicsOfOldRelease):
            self.has_topics_of_old_release = record.is_present

    def _apply_metadata(self, record: MemberMetadata) -> None:
        old = self.members.get(record.member_id)
        new = record.member
        if new is not None and old is not None:
            new = new.with_progress_of(old)
        elif new is not None:
            new = new.with_progress_of(Member(record.member_id))
        self._put(old, new)

    def _apply_current(self, record: CurrentAssignment) -> None:
        old = self.members.get(record.member_id)
        if old is not None:
            self._put(old, old.with_progress_of(record.member or Member(record.member_id)))

    def _put(self, old: Member | None, new: Member | None) -> None:
        """Replace a member, and keep all that is counted of members."""
        if old is not None:
            self._release(old.assigned)
            self._release(old.revoking)
        if new is not None:
            self.members[new.member_id] = new
            self._take(new.assigned, new.epoch)
            self._take(new.revoking, new.epoch)
        elif old is not None:
            del self.members[old.member_id]
        if _counts_otherwise(old, new):
            self._subscribed = None
            self._count(old, -1)
            self._count(new, 1)

    def _count(self, member: Member | None, change: int) -> None:
        if member is None:
            return
        self.metadata.change(change * member.metadata_bytes)
        self.metadata.change_objects(change * MEMBER_BYTES)
        for name in member.topics:
            _add(self.names, name, change)
        if member.regex:
            _add(self.regex_users, member.regex, change)
        if member.assignor is not None:
            _add(self.assignors, member.assignor, change)
        if member.instance_id is not None:
            if change > 0:
                self.static_members[member.instance_id] = member.member_id
            elif self.static_members.get(member.instance_id) == member.member_id:
                del self.static_members[member.instance_id]
        if member.classic is not None:
            self.classic_members += change
            for name, _ in member.classic.protocols:
                _add(self.classic_protocols, name, change)

    def _release(self, owned: Owned) -> None:
        for topic, partitions in owned.items():
            epochs = self.owner_epochs.get(topic)
            if epochs is not None:
                for index in partitions:
                    epochs.pop(index, None)
                if not epochs:
                    del self.owner_epochs[topic]

    def _take(self, owned: Owned, epoch: int) -> None:
        for topic, partitions in owned.items():
            self.owner_epochs.setdefault(topic, {}).update(dict.fromkeys(partitions, epoch))

    def owner_epoch(self, topic: bytes, index: int) -> int:
        """The epoch of the member that has a partition; FREE for one that no member has."""
        epochs = self.owner_epochs.get(topic)
        return FREE if epochs is None else epochs.get(index, FREE)

    # -- state -------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        """The state, as ListGroups shows it."""
        if self._state is None:
            self._state = self._current_state()
        return self._state

    def _current_state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def generation_id(self) -> int:
        """The epoch, for the log."""
        return self.epoch

    @property
    def protocol_type(self) -> str:
        """The type of the protocol of all these groups."""
        return CONSUMER

    @property
    def group_type(self) -> str:
        """The type of the group, as ListGroups shows it."""
        return CONSUMER

    def end(self, now_ms: int) -> None:
        """The group is dead from now on."""
        self.is_dead = True
        self._state = None

    @property
    def is_unwritten(self) -> bool:
        """Whether the log has nothing of the group but its offsets."""
        return self.epoch == 0 and not self.members and not self.regexes

    def tombstones(self) -> list[bytes]:
        """The keys of the group's records, those of its members first."""
        gone: list[Record] = []
        for member_id in self.members:
            gone += (CurrentAssignment(member_id, None), TargetMember(member_id, None), MemberMetadata(member_id, None))
        gone += [ResolvedRegex(regex, None) for regex in self.regexes]
        if self.has_topics_of_old_release:
            gone.append(TopicsOfOldRelease(False))
        if not self.is_unwritten:
            gone += (TargetEpoch(None), GroupEpoch(None))
        return [key for key, _ in self.pairs_of(gone)]

    def pairs_of(self, records: Iterable[Record]) -> list[Pair]:
        """The keys and values of records of the group."""
        return pairs_of(self.group_id, records)

    def session_key(self, member_id: str) -> Hashable:
        """The key of the timer of a member's session."""
        return MemberTimer(TimerKind.SESSION, member_id)

    # -- subscriptions -----------------------------------------------------------------------------------------------------

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members subscribe to, by name or by a regular expression."""
        if self._subscribed is None:
            found = set(self.names)
            for regex in self.regex_users:
                if regex in self.regexes:
                    found |= self.regexes[regex].topics
            self._subscribed = frozenset(found)
        return self._subscribed

    def read_subscriptions(self) -> Iterator[None]:
        """The names of the topics are known."""
        return iter(())

    def forget_subscriptions(self) -> None:
        """The names of the topics stay."""

    # -- offsets -----------------------------------------------------------------------------------------------------------

    def on_commit(self, committer: Committer) -> tuple[ErrorCode, list[Arm]]:
        """Whether the sender may commit offsets: a member in its epoch, or any sender while the group has no members. A member may use an
        earlier epoch in which it had all of the partitions already."""
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        member_id, instance_id, epoch, is_transactional = committer[:4]
        if epoch < 0 and not self.members:
            return ErrorCode.NONE, []
        if is_transactional and epoch == NO_GENERATION and member_id == NO_MEMBER_ID and instance_id is None:
            return ErrorCode.NONE, []
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        is_classic = member.classic is not None
        if not is_classic and not is_transactional and not committer.knows_new_errors:
            return ErrorCode.UNSUPPORTED_VERSION, []
        if epoch != member.epoch and (epoch > member.epoch or not _had_all(member, epoch, committer)):
            is_told = not is_classic and committer.knows_new_errors
            return ErrorCode.STALE_MEMBER_EPOCH if is_told else ErrorCode.ILLEGAL_GENERATION, []
        if is_transactional or member.classic is None:
            return ErrorCode.NONE, []
        return ErrorCode.NONE, [Arm(MemberTimer(TimerKind.SESSION, member_id), member.classic.session_timeout_ms)]

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the sender may fetch offsets: a member in its epoch, or any sender that does not say that it is one."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def check_offset_deletion(self) -> ErrorCode:
        """Offsets of topics without subscribers may be deleted always."""
        return ErrorCode.NONE

    def expiry(self) -> Expiry | None:
        """Offsets age from their commit on; those of subscribed topics do not."""
        return Expiry(None, self.subscribed_topics())


class ConsumerGroup(AssignedGroup):
    """A consumer group of the new protocol (KIP-848)."""

    __slots__ = ()


def _had_all(member: Member, epoch: int, committer: Committer) -> bool:
    """Whether the member had all partitions of a commit in an earlier epoch, and has not given them up since."""
    since = [member.epoch_of(topic, index) for topic, indexes in committer.partitions() for index in indexes]
    return all(each is not None and each <= epoch for each in since)


def _counts_otherwise(old: Member | None, new: Member | None) -> bool:
    """Whether anything differs that `_count` counts."""
    if old is None or new is None:
        return True
    return (old.topics, old.regex, old.assignor, old.instance_id, old.rack_id, old.client_id, old.classic) != (
        new.topics, new.regex, new.assignor, new.instance_id, new.rack_id, new.client_id, new.classic
    )  # fmt: skip


def _add(counts: dict[str, int], key: str, change: int) -> None:
    """Count; an entry with count 0 is removed."""
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
