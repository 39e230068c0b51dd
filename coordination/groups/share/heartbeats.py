"""Decides on the heartbeats of the members of a share group. Part of the state machine of a share group.

A member takes its target at once, because no other member has to give up a partition for it. New partitions are initialized at the share
coordinator first. The first heartbeat afterwards raises the epoch, unless a target is due anyway: the next target has the partitions.
"""

from __future__ import annotations

import logging

from ottla.coordination.groups.consumer.effects import Beat, BeatResult, ConsumerEffect, Decision, Initialize, Write
from ottla.coordination.groups.consumer.heartbeats import NO_ROOM, Refused
from ottla.coordination.groups.consumer.members import JOINING, LEAVING, Member, MemberState, indexes_of
from ottla.coordination.groups.consumer.records import CurrentAssignment, GroupEpoch, MemberMetadata, Record, StatePartitions
from ottla.coordination.groups.consumer.removal import remove
from ottla.coordination.groups.consumer.settings import Context
from ottla.coordination.groups.consumer.subscriptions import change_subscription, is_refused, topics_after
from ottla.coordination.groups.consumer.targets import next_goal
from ottla.coordination.groups.consumer.timers import MemberTimer, TimerKind
from ottla.coordination.groups.consumer.topics import ids_of
from ottla.coordination.groups.records import is_too_long
from ottla.coordination.groups.share.group import Initialized, ShareGroup, joined
from ottla.coordination.partitions.effects import Arm, Reply
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


def check(beat: Beat, group_id: str) -> None:
    """Refuse a heartbeat that no group accepts. Raises Refused."""
    for value, name in ((beat.member_id, "MemberId"), (group_id, "GroupId"), (beat.rack_id, "RackId")):
        if value is not None and not value.strip():
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if beat.epoch == JOINING and not beat.topics:
        raise Refused(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if beat.epoch < LEAVING:
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    names = (group_id, beat.member_id, beat.rack_id, beat.client_id)
    if any(is_too_long(name) for name in names if name is not None):
        raise Refused(ErrorCode.INVALID_REQUEST, "A name is longer than the records of a group can hold.")


def on_heartbeat(group: ShareGroup, beat: Beat, context: Context) -> Decision:
    """Decide on a heartbeat that `check` accepted."""
    try:
        if beat.epoch == LEAVING:
            member = _known_member(group, beat)
            reply = Reply(beat.waiter, BeatResult(member_id=member.member_id, epoch=LEAVING))
            return (yield from remove(group, [member], f"{member.member_id} left", context, (reply,)))
        return (yield from _stay(group, beat, context))
    except Refused as refused:
        return [Reply(beat.waiter, refused.result)]


def _known_member(group: ShareGroup, beat: Beat) -> Member:
    member = group.members.get(beat.member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member_id} is not a member of group {group.group_id}.")
    return member


def _stay(group: ShareGroup, beat: Beat, context: Context) -> Decision:
    old = group.members.get(beat.member_id)
    if beat.epoch != JOINING:
        old = _known_member(group, beat)
        _check_epoch(old, beat)
    elif old is None and len(group.members) >= context.settings.max_size:
        message = f"The share group has reached its maximum capacity of {context.settings.max_size} members."
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    member = _updated(old or Member(beat.member_id), beat)
    if is_refused(group, old, member):
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_ROOM)
    records: list[Record] = []
    if old is None:
        logger.info("group %s: member %s joins by the share protocol", group.group_id, member.member_id)
    if member != old:
        records.append(MemberMetadata(member.member_id, member))
    epoch = yield from change_subscription(group, old, member, context, records)
    if epoch == group.epoch <= group.target_epoch and group.has_unassigned(context.topics):
        epoch += 1
        records.append(GroupEpoch(epoch, group.metadata_hash))
    limited = context._replace(topics=group.assignable(context.topics))
    goal = yield from next_goal(group, old, member, epoch, limited, records)
    if is_refused(group, old, member):  # others took the room while a thread computed
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_ROOM)
    current = member
    if member.epoch != goal.epoch or epoch != group.epoch:
        named = ids_of(member.topics, context.topics)  # a topic that is deleted, or to which the member no longer subscribes, goes at once
        assigned = {topic: dict.fromkeys(indexes, goal.epoch) for topic, indexes in goal.target.items() if topic in named}
        current = member.at_epoch(goal.epoch)._replace(state=MemberState.STABLE, assigned=assigned)
    if current != member:
        records.append(CurrentAssignment(member.member_id, current))
    shown = indexes_of(current.assigned)
    is_full = beat.epoch == JOINING or beat.topics is not None
    result = BeatResult(
        member_id=member.member_id,
        epoch=current.epoch,
        heartbeat_interval_ms=context.times.heartbeat_interval_ms,
        assignment=shown if is_full or shown != indexes_of(member.assigned) else None,
    )
    session = Arm(MemberTimer(TimerKind.SESSION, member.member_id), context.times.session_timeout_ms)
    out: list[ConsumerEffect] = [session]
    initialize = _initialization(group, old, member, epoch, context, records)
    if initialize is not None:
        out.append(initialize)
    reply = Reply(beat.waiter, result)
    if not records:
        return [*out, reply]
    # A member is alive, even if the log does not take what it says.
    return [Write(tuple(records), (reply,), () if old is None else (session,)), *out]


def _check_epoch(member: Member, beat: Beat) -> None:
    """The epoch of the member, or the one before it: the answer with the new epoch may have been lost. Raises Refused."""
    if beat.epoch in (member.epoch, member.previous_epoch):
        return
    relation = "greater" if beat.epoch > member.epoch else "smaller"
    message = (
        f"The share group member has a {relation} member epoch ({beat.epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _updated(member: Member, beat: Beat) -> Member:
    return member._replace(
        rack_id=member.rack_id if beat.rack_id is None else beat.rack_id,
        topics=member.topics if beat.topics is None else beat.topics,
        client_id=beat.client_id,
        client_host=beat.client_host,
    )


def _initialization(
    group: ShareGroup, old: Member | None, member: Member, epoch: int, context: Context, records: list[Record]
) -> Initialize | None:
    """The partitions that the subscriptions of the group need and that are not initialized, unless that is in progress."""
    since_ms = group.initializing_since_ms
    is_asked = since_ms is not None and context.is_recent(since_ms, group.initializing_pause_ms)
    if is_asked or group.changing.locked():
        return None
    missing = group.uninitialized(topics_after(group, old, member), context.topics)
    if not missing:
        return None
    group.initializing_since_ms, group.initializing_pause_ms = context.now_ms, context.settings.initialize_retry_ms
    if joined(group.initializing, missing) != group.initializing:
        records.append(StatePartitions(joined(group.initializing, missing), group.initialized))
    return Initialize(missing, epoch)


def on_initialized(group: ShareGroup, partitions: Initialized, is_done: bool, context: Context) -> list[ConsumerEffect]:
    """The share coordinator has initialized partitions, or could not. They are assigned after the next heartbeat.

    After a failure they are asked for again with the first heartbeat after an interval of heartbeats: a member would get nothing for the
    whole time that an answer may take.
    """
    if not is_done:
        group.initializing_since_ms, group.initializing_pause_ms = context.now_ms, context.times.heartbeat_interval_ms
        return []
    group.initializing_since_ms = None
    if group.changing.locked():
        return []  # the change may undo it
    left = {topic: (name, indexes - partitions.get(topic, (name, frozenset()))[1]) for topic, (name, indexes) in group.initializing.items()}
    state = StatePartitions({topic: each for topic, each in left.items() if each[1]}, joined(group.initialized, partitions))
    return [Write((state,))]
