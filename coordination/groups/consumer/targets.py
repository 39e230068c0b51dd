"""Computes the target assignment of a consumer group: in a thread, on the members as they are after an event.

`next_goal` is part of the state machine; `compute` runs in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import NamedTuple

from ottla.coordination.groups.consumer.assignors import ALL_ASSIGNORS, Assignment, Subscriber
from ottla.coordination.groups.consumer.effects import ComputeTarget
from ottla.coordination.groups.consumer.group import AssignedGroup
from ottla.coordination.groups.consumer.members import Member
from ottla.coordination.groups.consumer.reconciliation import Goal
from ottla.coordination.groups.consumer.records import Record, Resolved, TargetEpoch, TargetMember
from ottla.coordination.groups.consumer.settings import Context
from ottla.coordination.groups.consumer.subscriptions import counts_after, preferred
from ottla.coordination.groups.consumer.topics import counts_of, ids_of
from ottla.storage.disk.yielding import PacedYield

logger = logging.getLogger(__name__)


class Computed(NamedTuple):
    """The records of a target, which are encoded already, and the part of each member whose part changed."""

    records: tuple[Record, ...]
    changed: Mapping[str, Assignment]


def next_goal(
    group: AssignedGroup, old: Member | None, new: Member, epoch: int, context: Context, records: list[Record]
) -> Generator[ComputeTarget, Computed, Goal]:
    """The target of a member after an event, which may have raised the epoch of the group. Adds the records of a new target."""
    old_id = new.member_id if old is None else old.member_id
    if not may_compute(group, epoch, context):
        is_other = old is not None and (old.topics, old.regex) != (new.topics, new.regex)
        only = ids_of(names_of(new, group.regexes), context.topics) if is_other else None
        return Goal(group.target_epoch, group.target.get(old_id, {}), only)
    members = dict(group.members)
    target = dict(group.target)
    if old_id != new.member_id:
        members.pop(old_id)
        target[new.member_id] = target.pop(old_id, {})
    members[new.member_id] = new
    assignors = counts_after(group.assignors, _named(old), _named(new))
    assignor = preferred(assignors, context.settings.assignors[0])
    computed = yield ComputeTarget(epoch, assignor, members, target, dict(group.regexes), context.topics, group.pairs_of)
    records += computed.records
    records.append(TargetEpoch(epoch, context.now_ms))
    logger.info("group %s: target of epoch %d by %r, %d members get another part", group.group_id, epoch, assignor, len(computed.changed))
    return Goal(epoch, computed.changed.get(new.member_id, target.get(new.member_id, {})))


def may_compute(group: AssignedGroup, epoch: int, context: Context) -> bool:
    """Whether there is an epoch without a target, and the last target is old enough for the next one."""
    if epoch <= group.target_epoch:
        return False
    return not group.target_ms or not context.is_recent(group.target_ms, context.times.assignment_interval_ms)


def names_of(member: Member, regexes: Mapping[str, Resolved]) -> frozenset[str]:
    """The topics to which a member subscribes, by name or by a regular expression."""
    names = frozenset(member.topics)
    if member.regex and member.regex in regexes:
        names |= regexes[member.regex].topics
    return names


def _named(member: Member | None) -> tuple[str, ...]:
    return () if member is None or member.assignor is None else (member.assignor,)


def compute(work: ComputeTarget) -> Computed:
    """The target of a group, in a thread: a pure function."""
    subscriptions: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
    subscribers: dict[str, Subscriber] = {}
    names: set[str] = set()
    for member_id, member in work.members.items():
        subscription = member.topics, member.regex
        topics = subscriptions.get(subscription)
        if topics is None:
            named = names_of(member, work.regexes)
            names |= named
            topics = subscriptions[subscription] = ids_of(named, work.topics)
        subscribers[member_id] = Subscriber(topics, work.target.get(member_id, {}), member.instance_id)
    assigned = ALL_ASSIGNORS[work.assignor](subscribers, counts_of(names, work.topics))
    changed = {member_id: each for member_id, each in assigned.items() if member_id not in work.target or each != work.target[member_id]}
    maybe_yield = PacedYield()
    records: list[Record] = []
    for member_id, each in changed.items():
        record = TargetMember(member_id, each)
        (pair,) = work.pairs_of((record,))
        records.append(record._replace(pair=pair))
        maybe_yield()
    return Computed(tuple(records), changed)
