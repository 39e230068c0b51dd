"""Converts groups with members from the classic to the new protocol, and back, while their members stay.

An upgrade keeps the members, their assignments and the generation, which becomes the epoch. The classic members are served on
(`classic_members`). A downgrade makes a classic group of the classic members that are left. Both read and write all assignments, of up to
200,000 topics and partitions, so threads compute the groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.coordination.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupSettings, Protocols
from ottla.coordination.groups.classic_group import Member as ClassicMember
from ottla.coordination.groups.consumer.embedded import (
    MOST_ELEMENTS,
    assignment_bytes,
    read_assignment,
    read_subscription,
    version_of,
)
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import ClassicPart, Member
from ottla.coordination.groups.consumer.records import (
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Pair,
    Record,
    TargetEpoch,
    TargetMember,
)
from ottla.coordination.groups.consumer.settings import ConsumerSettings
from ottla.coordination.groups.consumer.topics import Topics
from ottla.coordination.groups.effects import Effect, JoinResult, SyncResult, Timer, reply_to_join, reply_to_sync
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.membership import on_loaded
from ottla.coordination.groups.rebalance import maybe_prepare_rebalance
from ottla.coordination.groups.records import group_key, group_value
from ottla.coordination.partitions.effects import Arm, Reply
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.wire import ProtocolError
from ottla.storage.disk.yielding import PacedYield


def may_upgrade(group: ClassicGroup, settings: ConsumerSettings) -> bool:
    """Whether a classic group with members may become a group of the new protocol."""
    return settings.may_upgrade and group.is_consumer_group and len(group.members) <= settings.max_size


class CustomAssignorError(Exception):
    """An assignment has data of the members' assignor, as those of Kafka Streams have. The broker's assignors could not make it."""


class MemberBefore(NamedTuple):
    """The facts of a classic member for an upgrade."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes


class Before(NamedTuple):
    """The facts of a classic group for an upgrade. As long as they stay equal, the result of a thread may replace the group."""

    group_id: str
    generation_id: int
    protocol_name: str
    members: list[MemberBefore]


def before_upgrade(classic: ClassicGroup) -> Before:
    """The state of a classic group for an upgrade in a thread."""
    members = [
        MemberBefore(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.rebalance_timeout_ms,
            each.session_timeout_ms,
            each.protocols,
            each.assignment,
        )
        for each in classic.members.values()
    ]
    return Before(classic.group_id, classic.generation_id, classic.protocol_name or "", members)


def upgraded(before: Before, topics: Topics) -> tuple[ConsumerGroup, list[Pair]]:
    """(the group of the new protocol, its records). Blocks for a fifth of a second if the group is large; for any thread.

    Raises CustomAssignorError, and ProtocolError for members that do not keep to the consumer protocol. The first protocol of each decides
    about the version of its later assignments, so that has to be readable, too.
    """
    epoch = before.generation_id
    metadata: list[Record] = []
    targets: list[Record] = []
    current: list[Record] = []
    taken: set[tuple[bytes, int]] = set()
    elements = 0
    maybe_yield = PacedYield()
    for each in before.members:
        had = read_assignment(each.assignment, topics)
        if had.user_data:
            raise CustomAssignorError
        first = each.protocols[0][1]
        version_of(first)
        # A member that has joined the next rebalance already may not support the protocol of the last one any more.
        subscription = read_subscription(dict(each.protocols).get(before.protocol_name, first), topics)
        elements += had.elements + subscription.elements
        if elements > MOST_ELEMENTS:
            raise ProtocolError(f"its members have more than {MOST_ELEMENTS} topics and partitions")
        assigned = {
            topic: {index: epoch for index in sorted(indexes) if (topic, index) not in taken} for topic, indexes in had.partitions.items()
        }
        owned = {topic: partitions for topic, partitions in assigned.items() if partitions}
        taken.update((topic, index) for topic, partitions in owned.items() for index in partitions)
        member = Member(
            each.member_id,
            each.instance_id,
            subscription.rack_id,
            each.client_id,
            each.client_host,
            subscription.topics,
            None,
            each.rebalance_timeout_ms,
            None,
            ClassicPart(each.session_timeout_ms, each.protocols),
            epoch,
            epoch,
            assigned=owned,
        )
        metadata.append(MemberMetadata(each.member_id, member))
        targets.append(TargetMember(each.member_id, {topic: frozenset(partitions) for topic, partitions in owned.items()}))
        current.append(CurrentAssignment(each.member_id, member))
        maybe_yield()
    group = ConsumerGroup(before.group_id)
    pairs: list[Pair] = []
    for record in (*metadata, GroupEpoch(epoch), *targets, TargetEpoch(epoch), *current):
        group.apply(record)
        pairs += group.pairs_of((record,))
        maybe_yield()
    return group, pairs


def send_away(classic: ClassicGroup) -> list[Effect]:
    """All members that wait for the end of a rebalance have to join again."""
    out: list[Effect] = []
    for member in classic.members.values():
        reply_to_join(classic, member, JoinResult(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS), out)
        reply_to_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS), out)
    assert all(isinstance(effect, Reply) for effect in out)
    return out


def on_reverted(classic: ClassicGroup, now_ms: int) -> list[Effect]:
    """The upgrade could not be written, so the group stays classic: it gets its timers back, and all members have to join again.

    Member ids that clients were given get the shortest session timeout that the broker accepts. Without a timer they would stay forever.
    """
    out = on_loaded(classic, now_ms)
    out += [Arm(member_id, classic.settings.min_session_timeout_ms) for member_id in classic.pending_members]
    if classic.state is GroupState.PREPARING_REBALANCE:
        out.append(Arm(Timer.JOIN, classic.rebalance_timeout_ms))
    elif classic.members:
        maybe_prepare_rebalance(classic, "it could not be converted", now_ms, out)
    return out


def downgraded(
    group: ConsumerGroup, without: Collection[str], settings: GroupSettings, names: Mapping[bytes, str], now_ms: int
) -> tuple[ClassicGroup, list[Pair]]:
    """(the classic group of the members that stay, the records that replace the group). It is stable in the generation of the epoch.

    `names` are those of the topics, by id. For any thread, while nothing changes the group.
    """
    classic = ClassicGroup(group.group_id, settings, now_ms, GroupState.STABLE)
    classic.generation_id = group.epoch
    maybe_yield = PacedYield()
    for member in group.members.values():
        if member.member_id in without or member.classic is None:
            continue
        assigned = assignment_bytes(member.assigned, version_of(member.classic.protocols[0][1]), names)
        made = ClassicMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.classic.session_timeout_ms,
            member.classic.protocols,
            assigned,
        )
        classic.add(made, CONSUMER_PROTOCOL_TYPE, None)
        maybe_yield()
    classic.protocol_name = classic.select_protocol()
    classic.remember_subscriptions()
    pairs: list[Pair] = [(key, None) for key in group.tombstones()]
    assignment = {member_id: member.assignment for member_id, member in classic.members.items()}
    pairs.append((group_key(group.group_id), group_value(classic, assignment)))
    return classic, pairs
