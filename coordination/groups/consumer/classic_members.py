"""Decides on JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a group of the new protocol.

Such members are in a group while it moves from one protocol to the other. The broker assigns their partitions as those of others. A
generation is the epoch of the member: each step towards its target is a JoinGroup and a SyncGroup, which REBALANCE_IN_PROGRESS demands. All
members are followers. Part of the state machine of a consumer group.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import Final

from ottla.coordination.groups.classic_group import CONSUMER_PROTOCOL_TYPE, NO_MEMBER_ID
from ottla.coordination.groups.consumer.effects import Compute, ConsumerEffect, Convert, Decision, Write
from ottla.coordination.groups.consumer.embedded import Subscription, assignment_bytes, read_subscription, version_of
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.heartbeats import replacing
from ottla.coordination.groups.consumer.members import JOINING, ClassicPart, Member, MemberState
from ottla.coordination.groups.consumer.reconciliation import FREE, UnknownMemberState, reconcile
from ottla.coordination.groups.consumer.records import CurrentAssignment, MemberMetadata, Record
from ottla.coordination.groups.consumer.removal import may_convert, remove
from ottla.coordination.groups.consumer.settings import Context
from ottla.coordination.groups.consumer.subscriptions import Sender, change_subscription, is_refused
from ottla.coordination.groups.consumer.targets import may_compute, next_goal
from ottla.coordination.groups.consumer.timers import MemberTimer, TimerKind
from ottla.coordination.groups.consumer.topics import Topics
from ottla.coordination.groups.effects import JoinResult, LeaveReply, LeaveResult, SyncResult
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.rebalance import Join
from ottla.coordination.groups.records import is_too_long
from ottla.coordination.groups.syncing import Sync
from ottla.coordination.partitions.effects import Arm, Disarm, Reply
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.wire import ProtocolError

logger = logging.getLogger(__name__)

READ_AT_ONCE: Final = 8 * 1024
"""Bytes of a subscription that is read on the event loop, at most two milliseconds. One of a megabyte takes 40."""


class Refused(Exception):
    """A request of a classic member that is refused."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


# -- JoinGroup ---------------------------------------------------------------------------------------------------------------


def on_classic_join(group: ConsumerGroup, join: Join, context: Context) -> Decision:
    """A classic member joins, or takes the next step towards its target. `join.uuid` is an id for a new member."""
    member_id = join.member_id or join.uuid
    try:
        if context.settings.is_migration_disabled:
            reason = "group.consumer.migration.policy is disabled"
            logger.info("group %s: member %s cannot join by the classic protocol: %s", group.group_id, member_id, reason)
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if _is_full(group, join, context):
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not _shares_a_protocol(group, join):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if join.requires_known_member_id and not join.member_id:
            return [Reply(join.waiter, JoinResult(member_id, ErrorCode.MEMBER_ID_REQUIRED))]
        sender = _sender(group, join, member_id)
        subscription = yield from _subscription_of(join, context)
        return (yield from _join(group, join, sender, subscription, context))
    except Refused as refused:
        return [Reply(join.waiter, JoinResult(NO_MEMBER_ID, refused.error))]
    except (ProtocolError, UnknownMemberState) as error:
        logger.warning("group %s: the JoinGroup of %s cannot be served: %s", group.group_id, member_id, error)
        return [Reply(join.waiter, JoinResult(join.member_id, ErrorCode.UNKNOWN_SERVER_ERROR))]


def _subscription_of(join: Join, context: Context) -> Generator[Compute, Subscription | ProtocolError, Subscription]:
    """The subscription of the member. Raises ProtocolError."""
    data = join.protocols[0][1]
    if len(data) <= READ_AT_ONCE:
        return read_subscription(data, context.topics)
    found = yield Compute(partial(_read, data, context.topics))
    if isinstance(found, ProtocolError):
        raise found
    return found


def _read(data: bytes, topics: Topics) -> Subscription | ProtocolError:
    try:
        return read_subscription(data, topics)
    except ProtocolError as error:
        return error


def _is_full(group: ConsumerGroup, join: Join, context: Context) -> bool:
    return len(group.members) >= context.settings.max_size and join.member_id not in group.members


def _shares_a_protocol(group: ConsumerGroup, join: Join) -> bool:
    """Whether the member has a protocol that all classic members have."""
    if join.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    return any(group.classic_protocols.get(name, 0) == group.classic_members for name, _ in join.protocols)


def _sender(group: ConsumerGroup, join: Join, member_id: str) -> Sender:
    """Raises Refused."""
    if any(map(is_too_long, (member_id, join.client_id, join.group_instance_id or ""))):
        raise Refused(ErrorCode.INVALID_REQUEST)
    known = group.members.get(member_id)
    instance_id = join.group_instance_id
    if instance_id is None:
        return Sender(known or Member(member_id), known)
    current = group.static_members.get(instance_id)
    if join.member_id:
        if current is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if current != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID)
        return Sender(group.members[current], known)
    if current is None:
        return Sender(Member(member_id), None)
    static = group.members[current]
    return Sender(static._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING), static)


def _join(group: ConsumerGroup, join: Join, sender: Sender, subscription: Subscription, context: Context) -> Decision:
    member = sender.member._replace(
        instance_id=join.group_instance_id or sender.member.instance_id,
        rack_id=subscription.rack_id or sender.member.rack_id,
        client_id=join.client_id,
        client_host=join.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        classic=ClassicPart(join.session_timeout_ms, join.protocols),
    )
    if is_refused(group, sender.old, member):
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    records: list[Record] = []
    timers: list[ConsumerEffect] = []
    old = sender.old
    if old is None:
        logger.info("group %s: member %s joins by the classic protocol", group.group_id, member.member_id)
    elif old.member_id != member.member_id:
        records += replacing(group, old, sender.member)
        timers += [Disarm(MemberTimer(kind, old.member_id)) for kind in TimerKind]
    if old is None or member != sender.member:
        records.append(MemberMetadata(member.member_id, member))
    epoch = yield from change_subscription(group, old, member, context, records)
    goal = yield from next_goal(group, old, member, epoch, context, records)
    if is_refused(group, old, member):  # others took the room while a thread computed
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    reconciled = reconcile(member, goal, group.owner_epoch, subscription.held)
    if reconciled != member:
        records.append(CurrentAssignment(member.member_id, reconciled))
    result = JoinResult(
        member.member_id, ErrorCode.NONE, reconciled.epoch, CONSUMER_PROTOCOL_TYPE, join.protocols[0][0], leader_id="", members=None
    )
    reply = Reply(join.waiter, result)
    timers += [
        Disarm(MemberTimer(TimerKind.JOIN, member.member_id)),
        Arm(MemberTimer(TimerKind.SESSION, member.member_id), join.session_timeout_ms),
        Arm(MemberTimer(TimerKind.SYNC, member.member_id), max(0, join.rebalance_timeout_ms)),
    ]
    last = old is not None and old.classic is None and may_convert(group, [old], context, joining=1)
    convert = [Convert(frozenset())] if last else []
    return [Write(tuple(records), (reply,)), *timers, *convert] if records else [*timers, reply]


# -- SyncGroup and Heartbeat -------------------------------------------------------------------------------------------------


def on_classic_sync(group: ConsumerGroup, sync: Sync, names: Mapping[bytes, str]) -> list[ConsumerEffect]:
    """A classic member asks for its assignment. `names` are those of the cluster's topics, by id."""
    try:
        member, classic = _classic_member(group, sync.member_id, sync.group_instance_id)
        if sync.generation_id != member.epoch:
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
        protocol, metadata = classic.protocols[0]
        if sync.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or sync.protocol_name not in (None, protocol):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    except Refused as refused:
        return [Reply(sync.waiter, SyncResult(refused.error))]
    # A member that has to give up partitions joined for this epoch already: its assignment lacks them, and its next step follows.
    if member.epoch < group.target_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return [*_demand_join(group, member), Reply(sync.waiter, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))]
    assigned = assignment_bytes(member.assigned, version_of(metadata), names)
    return [
        Disarm(MemberTimer(TimerKind.SYNC, member.member_id)),
        Arm(MemberTimer(TimerKind.SESSION, member.member_id), classic.session_timeout_ms),
        Reply(sync.waiter, SyncResult(ErrorCode.NONE, sync.protocol_type, sync.protocol_name, assigned)),
    ]


def on_classic_heartbeat(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int, context: Context
) -> tuple[ErrorCode, list[ConsumerEffect]]:
    """Heartbeat of a classic member. REBALANCE_IN_PROGRESS makes it join again, to take the next step.

    While the next target is not due yet there is no step to take, and the member would join again and again.
    """
    try:
        member, classic = _classic_member(group, member_id, group_instance_id)
    except Refused as refused:
        return refused.error, []
    if generation_id != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION, []
    effects: list[ConsumerEffect] = [Arm(MemberTimer(TimerKind.SESSION, member_id), classic.session_timeout_ms)]
    if member.epoch < group.target_epoch or may_compute(group, group.epoch, context) or _can_step(group, member):
        return ErrorCode.REBALANCE_IN_PROGRESS, effects + _demand_join(group, member)
    return ErrorCode.NONE, effects


def _classic_member(group: ConsumerGroup, member_id: str, group_instance_id: str | None) -> tuple[Member, ClassicPart]:
    """Raises Refused."""
    member = _named_member(group, member_id, group_instance_id)
    if member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.classic


def _named_member(group: ConsumerGroup, member_id: str, group_instance_id: str | None) -> Member:
    """Raises Refused."""
    if group_instance_id is not None:
        current = group.static_members.get(group_instance_id)
        if current is not None and member_id not in (NO_MEMBER_ID, current):
            raise Refused(ErrorCode.FENCED_INSTANCE_ID)
        member_id = current or NO_MEMBER_ID
    if member_id not in group.members:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return group.members[member_id]


def _can_step(group: ConsumerGroup, member: Member) -> bool:
    """Whether the member has to give up partitions, or all partitions that it waits for are free."""
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    for topic, indexes in group.target.get(member.member_id, {}).items():
        has = member.assigned.get(topic, {})
        if any(index not in has and group.owner_epoch(topic, index) != FREE for index in indexes):
            return False
    return True


def _demand_join(group: ConsumerGroup, member: Member) -> list[ConsumerEffect]:
    """Give the member the time of its rebalance timeout to join again, unless it runs already."""
    key = MemberTimer(TimerKind.JOIN, member.member_id)
    return [] if key in group.timers else [Arm(key, max(0, member.rebalance_timeout_ms))]


# -- LeaveGroup --------------------------------------------------------------------------------------------------------------


def on_leave(group: ConsumerGroup, leaving: Iterable[Leaving], waiter: LeaveReply, context: Context) -> Decision:
    """Classic members leave. Also members of the new protocol may be named: operators remove them by LeaveGroup."""
    errors = []
    found: dict[str, Member] = {}
    for each in leaving:
        try:
            if each.group_instance_id is None and each.member_id == NO_MEMBER_ID:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
            member = _named_member(group, each.member_id, each.group_instance_id)
            found[member.member_id] = member
            errors.append(ErrorCode.NONE)
        except Refused as refused:
            errors.append(refused.error)
    reply = Reply(waiter, LeaveResult(ErrorCode.NONE, errors))
    return (yield from remove(group, list(found.values()), f"{len(found)} members left", context, (reply,))) if found else [reply]
