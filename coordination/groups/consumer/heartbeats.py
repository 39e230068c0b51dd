"""Decides on the heartbeats of members: they join, change their subscription, leave, or report what they have.

Part of the state machine of a consumer group. Functions return effects, and leave the group unchanged; `Write` changes it when its records
are in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ottla.coordination.groups.consumer.effects import Beat, BeatResult, ConsumerEffect, Decision, Write
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import JOINING, LEAVING, LEAVING_FOR_A_WHILE, NOTHING, Member, MemberState, indexes_of
from ottla.coordination.groups.consumer.reconciliation import Goal, UnknownMemberState, reconcile
from ottla.coordination.groups.consumer.records import CurrentAssignment, MemberMetadata, Record, TargetMember
from ottla.coordination.groups.consumer.removal import remove
from ottla.coordination.groups.consumer.settings import WAITING_INTERVAL_MS, ConsumerSettings, Context, GroupTimes
from ottla.coordination.groups.consumer.subscriptions import Sender, change_subscription, check_regex, is_refused, resolution
from ottla.coordination.groups.consumer.targets import next_goal
from ottla.coordination.groups.consumer.timers import MemberTimer, TimerKind
from ottla.coordination.groups.consumer.topics import Topics
from ottla.coordination.groups.records import is_too_long
from ottla.coordination.partitions.effects import Arm, Disarm, Reply
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

MAX_SHOWN: Final = 1_000
"""The part of a regular expression, and of the reason against it, that an error message shows, characters."""

NO_ROOM: Final = "The broker has no memory left for the subscriptions of more members."


class Refused(Exception):
    """A heartbeat that is refused."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.result = BeatResult(error, message)


def check(beat: Beat, group_id: str, assignors: Sequence[str], *, requires_member_id: bool) -> None:
    """Refuse a heartbeat that no group accepts. Raises Refused."""
    named = (
        (beat.member_id if requires_member_id else None, "MemberId"),
        (group_id, "GroupId"),
        (beat.instance_id, "InstanceId"),
        (beat.rack_id, "RackId"),
    )
    for value, name in named:
        if value is not None and not value.strip():
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if beat.epoch == JOINING:
        _check_join(beat)
    elif beat.epoch == LEAVING_FOR_A_WHILE:
        if beat.instance_id is None:
            raise Refused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif beat.epoch < LEAVING:
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if beat.epoch != JOINING and not beat.member_id.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if beat.assignor is not None and beat.assignor not in assignors:
        known = ", ".join(assignors)
        raise Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {known}.")
    for kept in (group_id, beat.member_id, beat.instance_id, beat.rack_id, beat.regex, beat.client_id):
        if kept is not None and is_too_long(kept):
            raise Refused(ErrorCode.INVALID_REQUEST, "A name is longer than the records of a group can hold.")


def _check_join(beat: Beat) -> None:
    if beat.rebalance_timeout_ms == -1:
        raise Refused(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if beat.held is None or beat.held:
        raise Refused(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if beat.topics is None and beat.regex is None:
        message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        raise Refused(ErrorCode.INVALID_REQUEST, message)


def has_no_news(
    group: ConsumerGroup, member: Member, epoch: int, instance_id: str | None, client_id: str, client_host: str, topics: Topics
) -> bool:
    """Whether neither the member nor the group has anything to tell to a heartbeat that names the member and its epoch alone.

    So it is with nearly all heartbeats. `on_heartbeat` would decide to begin the session timeout anew, and to answer with the epoch. That
    takes 4 times as long.
    """
    return (
        epoch == member.epoch == group.target_epoch == group.epoch
        and epoch > JOINING
        and member.state is MemberState.STABLE
        and instance_id == member.instance_id
        and client_id == member.client_id
        and client_host == member.client_host
        and group.known_topics is topics
        and not group.regex_users
        and member.classic is None
    )


def interval_ms(times: GroupTimes, settings: ConsumerSettings, members: int) -> int:
    """The time between the heartbeats of a member, while all groups have so many members together.

    A member hears of a rebalance by its next heartbeat. With few members, more frequent heartbeats cost little.
    """
    if not times.is_interval_default or not settings.heartbeats_per_second:
        return times.heartbeat_interval_ms
    return min(times.heartbeat_interval_ms, max(WAITING_INTERVAL_MS, members * 1_000 // settings.heartbeats_per_second))


def on_heartbeat(group: ConsumerGroup, beat: Beat, context: Context) -> Decision:
    """Decide on a heartbeat that `check` accepted."""
    try:
        if beat.epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return (yield from _leave(group, beat, context))
        return (yield from _stay(group, beat, context))
    except Refused as refused:
        return [Reply(beat.waiter, refused.result)]


def _leave(group: ConsumerGroup, beat: Beat, context: Context) -> Decision:
    member = _known_member(group, beat)
    reply = Reply(beat.waiter, BeatResult(member_id=member.member_id, epoch=beat.epoch))
    if beat.epoch == LEAVING:
        return (yield from remove(group, [member], f"{member.member_id} left", context, (reply,)))
    away = member.at_epoch(LEAVING_FOR_A_WHILE)._replace(revoking=NOTHING)
    return [Write((CurrentAssignment(member.member_id, away),), (reply,)), Disarm(MemberTimer(TimerKind.REBALANCE, member.member_id))]


def _known_member(group: ConsumerGroup, beat: Beat) -> Member:
    """The member that sends a heartbeat. Raises Refused."""
    instance_id = beat.instance_id
    if instance_id is None:
        member = group.members.get(beat.member_id)
        if member is None:
            message = f"Member {beat.member_id} is not a member of group {group.group_id}."
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member
    current = group.static_members.get(instance_id)
    if current is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if current != beat.member_id:
        message = f"Static member {beat.member_id} with instance id {instance_id} was fenced by member {current}."
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, message)
    return group.members[current]


def _stay(group: ConsumerGroup, beat: Beat, context: Context) -> Decision:
    sender = _sender(group, beat, context.settings)
    member = _updated(sender.member, beat)
    if is_refused(group, sender.old, member):
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_ROOM)
    if member.regex and member.regex not in group.regex_users:
        reason = yield from check_regex(member.regex)
        if reason is not None:
            message = f"SubscribedTopicRegex `{member.regex[:MAX_SHOWN]}` is not a valid regular expression: {reason[:MAX_SHOWN]}."
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
    records: list[Record] = []
    out: list[ConsumerEffect] = []
    old = sender.old
    if old is None:
        logger.info("group %s: member %s joins by the consumer protocol", group.group_id, member.member_id)
    elif old.member_id != member.member_id:
        logger.info("group %s: %s takes the place of static member %s", group.group_id, member.member_id, old.member_id)
        records += replacing(group, old, sender.member)
        out += [Disarm(MemberTimer(kind, old.member_id)) for kind in TimerKind]
    if old is None or member != sender.member:
        records.append(MemberMetadata(member.member_id, member))
    epoch = yield from change_subscription(group, old, member, context, records)
    goal = yield from next_goal(group, old, member, epoch, context, records)
    if is_refused(group, old, member):  # others took the room while a thread computed
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_ROOM)
    out += resolution(group, old, member, beat.may_describe, context)
    return out + _answer(group, member, goal, beat, context, records, has_target=goal.epoch == epoch)


def _sender(group: ConsumerGroup, beat: Beat, settings: ConsumerSettings) -> Sender:
    """Raises Refused."""
    if beat.epoch != JOINING:
        member = _known_member(group, beat)
        _check_epoch(member, beat)
        return Sender(member, member)
    known = group.members.get(beat.member_id)
    if known is None and len(group.members) >= settings.max_size:
        message = f"The consumer group has reached its maximum capacity of {settings.max_size} members."
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    current = None if beat.instance_id is None else group.static_members.get(beat.instance_id)
    if current is None or current == beat.member_id:
        return Sender(known or Member(beat.member_id), known)
    static = group.members[current]
    if static.classic is None and static.epoch != LEAVING_FOR_A_WHILE:
        message = (
            f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group because the instance id is owned by "
            f"{current} member."
        )
        raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, message)
    return Sender(static._replace(member_id=beat.member_id, epoch=JOINING, previous_epoch=JOINING), static)


def _check_epoch(member: Member, beat: Beat) -> None:
    """The epoch of the member, or the one before it: the answer with the new epoch may have been lost. Raises Refused."""
    if beat.epoch == member.epoch:
        return
    if beat.epoch < member.epoch and beat.epoch == member.previous_epoch and beat.held is not None and member.owns_all(beat.held):
        return
    relation = "greater" if beat.epoch > member.epoch else "smaller"
    message = (
        f"The consumer group member has a {relation} member epoch ({beat.epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, message)


def replacing(group: ConsumerGroup, old: Member, new: Member) -> list[Record]:
    """A member takes the place of a static member, with its target and its partitions."""
    return [
        CurrentAssignment(old.member_id, None),
        TargetMember(old.member_id, None),
        MemberMetadata(old.member_id, None),
        MemberMetadata(new.member_id, new),
        TargetMember(new.member_id, group.target.get(old.member_id, {})),
        CurrentAssignment(new.member_id, new),
    ]


def _updated(member: Member, beat: Beat) -> Member:
    """The member with all that the heartbeat says of it."""
    return member._replace(
        instance_id=member.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=member.rack_id if beat.rack_id is None else beat.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if beat.rebalance_timeout_ms == -1 else beat.rebalance_timeout_ms,
        assignor=member.assignor if beat.assignor is None else beat.assignor,
        topics=member.topics if beat.topics is None else beat.topics,
        regex=member.regex if beat.regex is None else beat.regex,
        client_id=beat.client_id,
        client_host=beat.client_host,
        classic=None,
    )


def _answer(
    group: ConsumerGroup, member: Member, goal: Goal, beat: Beat, context: Context, records: list[Record], *, has_target: bool
) -> list[ConsumerEffect]:
    """Bring the member nearer to its target, and answer. `has_target`: whether there is a target of the last epoch."""
    try:
        reconciled = reconcile(member, goal, group.owner_epoch, beat.held)
    except UnknownMemberState:
        message = "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, message) from None
    session = Arm(MemberTimer(TimerKind.SESSION, member.member_id), context.times.session_timeout_ms)
    out: list[ConsumerEffect] = [session]
    if reconciled != member:
        records.append(CurrentAssignment(member.member_id, reconciled))
        timer = MemberTimer(TimerKind.REBALANCE, member.member_id)
        is_revoking = reconciled.state is MemberState.UNREVOKED_PARTITIONS
        out.append(Arm(timer, max(0, reconciled.rebalance_timeout_ms)) if is_revoking else Disarm(timer))
    # Most heartbeats change nothing, and are answered without a look at the partitions.
    is_told = beat.is_full or (reconciled is not member and indexes_of(reconciled.assigned) != indexes_of(member.assigned))
    result = BeatResult(
        member_id=member.member_id,
        epoch=reconciled.epoch,
        heartbeat_interval_ms=_interval_ms(group, reconciled, context, has_target=has_target),
        assignment=indexes_of(reconciled.assigned) if is_told else None,
    )
    reply = Reply(beat.waiter, result)
    if not records:
        return [*out, reply]
    # A member is alive, even if the log does not take what it says.
    otherwise: tuple[Arm, ...] = (session,) if member.member_id in group.members else ()
    return [Write(tuple(records), (reply,), otherwise), *out]


def _interval_ms(group: ConsumerGroup, member: Member, context: Context, *, has_target: bool) -> int:
    """The time to the next heartbeat."""
    interval_ms = context.heartbeat_interval_ms
    is_waiting = (
        not has_target or member.state is MemberState.UNRELEASED_PARTITIONS or (bool(member.regex) and member.regex not in group.regexes)
    )
    return min(interval_ms, WAITING_INTERVAL_MS) if is_waiting else interval_ms
