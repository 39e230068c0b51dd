"""Removes members from a consumer group: they left, or were not heard of in time. Part of the state machine of a consumer group."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.coordination.groups.consumer.effects import ConsumerEffect, Convert, Decision, Write
from ottla.coordination.groups.consumer.group import AssignedGroup
from ottla.coordination.groups.consumer.members import Member
from ottla.coordination.groups.consumer.records import CurrentAssignment, MemberMetadata, Record, ResolvedRegex, TargetEpoch, TargetMember
from ottla.coordination.groups.consumer.settings import Context
from ottla.coordination.groups.consumer.subscriptions import counts_after, raise_epoch
from ottla.coordination.groups.consumer.timers import MemberTimer, TimerKind
from ottla.coordination.partitions.effects import Arm, Disarm, Reply

logger = logging.getLogger(__name__)

RETRY_MS = 500
"""Time after which the removal of a member is tried again, if it could not be written."""

REASONS = {
    TimerKind.SESSION: "the member session expired",
    TimerKind.REBALANCE: "it did not give up partitions in time",
    TimerKind.JOIN: "the classic member failed to join within the rebalance timeout",
    TimerKind.SYNC: "the member failed to sync within timeout",
}


def on_timer(group: AssignedGroup, key: MemberTimer, context: Context) -> Decision | list[ConsumerEffect]:
    """A timer is due: its member is removed."""
    member = group.members.get(key.member_id)
    if member is None:
        return []
    return remove(group, [member], f"{key.member_id} is removed: {REASONS[key.kind]}", context, otherwise=(Arm(key, RETRY_MS),))


def remove(
    group: AssignedGroup,
    members: Sequence[Member],
    reason: str,
    context: Context,
    replies: tuple[Reply, ...] = (),
    otherwise: tuple[Arm, ...] = (),
) -> Decision:
    """Remove members, whose partitions are free from now on. A group of classic members alone becomes a classic group."""
    logger.info("group %s: %s", group.group_id, reason)
    gone = frozenset(member.member_id for member in members)
    if may_convert(group, members, context):
        return [Convert(gone, replies, otherwise)]
    records: list[Record] = []
    for member in members:
        member_id = member.member_id
        records += (CurrentAssignment(member_id, None), TargetMember(member_id, None), MemberMetadata(member_id, None))
    names = counts_after(group.names, [name for member in members for name in member.topics], ())
    regexes = counts_after(group.regex_users, [member.regex for member in members if member.regex], ())
    records += [ResolvedRegex(regex, None) for regex in group.regexes if regex not in regexes]
    subscribed = set(names).union(*[group.regexes[regex].topics for regex in regexes if regex in group.regexes])
    epoch = yield from raise_epoch(group, subscribed, context, records, is_other=True)
    if len(gone) == len(group.members):
        records.append(TargetEpoch(epoch))  # nothing is to be assigned, and the next member does not wait for its target
    timers = [Disarm(MemberTimer(kind, member_id)) for member_id in gone for kind in TimerKind]
    return [Write(tuple(records), replies, otherwise), *timers]


def may_convert(group: AssignedGroup, leaving: Sequence[Member], context: Context, *, joining: int = 0) -> bool:
    """Whether the group becomes a classic one when these members leave: all others, and those that join, have the classic protocol."""
    left = len(group.members) - len(leaving)
    are_last = group.classic_members - sum(member.classic is not None for member in leaving) == left
    return are_last and 0 < left + joining <= context.settings.classic_max_size and context.settings.may_downgrade
