"""Decides on SyncGroup: the leader sends the assignment of its generation, and each member gets its part.

The module is a part of the state machine of a group. The assignment is stored before any member gets it, so the next coordinator also has
it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.coordination.groups.classic_group import ClassicGroup, Member
from ottla.coordination.groups.effects import (
    AfterEmpty,
    AfterStaticRejoin,
    AfterSync,
    Completion,
    Effect,
    Store,
    SyncReply,
    SyncResult,
    arm_session,
    reply_to_sync,
)
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.rebalance import fail_syncs, maybe_prepare_rebalance, on_member_synced, on_static_rejoin_stored
from ottla.coordination.groups.records import group_value
from ottla.coordination.partitions.effects import Arm, Many, Reply
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class Sync(NamedTuple):
    """A SyncGroup. Protocol type and name are checked if they are given (KIP-559)."""

    waiter: SyncReply
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


def on_sync(group: ClassicGroup, sync: Sync) -> list[Effect]:
    """A member requests its assignment; the leader's request has the assignments of all members."""
    out: list[Effect] = []
    error = _check(group, sync)
    if error:
        out.append(Reply(sync.waiter, SyncResult(error)))
        return out
    member = group.members[sync.member_id]
    if group.state is GroupState.STABLE:
        on_member_synced(group, member, out)
        out.append(Reply(sync.waiter, SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)))
        arm_session(member, out)
        return out
    assigns = group.leader_id == sync.member_id and group.assigned_generation_id != group.generation_id
    if assigns and _is_refused(group, member, sync.assignments):
        out.append(Reply(sync.waiter, SyncResult(ErrorCode.UNKNOWN_SERVER_ERROR)))  # as for assignments too large for a record
        return out
    # As with JoinGroup, a second request of the same member must not leave the first waiting.
    reply_to_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS), out)
    member.sync_waiter = sync.waiter
    on_member_synced(group, member, out)
    # A second request of the leader, while the first assignment is being stored, may have another assignment. The next coordinator would
    # find the second one, while members have the first.
    if assigns:
        group.assigned_generation_id = group.generation_id
        assignment = sync.assignments
        missing = group.members.keys() - assignment.keys()
        if missing:
            logger.warning("group %s: the leader assigned nothing to %d members", group.group_id, len(missing))
            assignment = {**assignment, **dict.fromkeys(missing, b"")}
        group.count_assignments(max(group.assigned_bytes, sum(map(len, assignment.values()))))  # others must not take the room meanwhile
        out.append(Store(group_value(group, assignment), AfterSync(group.generation_id, assignment)))
    return out


def _is_refused(group: ClassicGroup, leader: Member, assignments: Mapping[str, bytes]) -> bool:
    """Whether there is no room for the assignments of the members. There always is if they take no more than the last ones."""
    more = sum(map(len, assignments.values())) - group.assigned_bytes
    return group.metadata.refuse(more, group.group_id, f"{leader.client_id} ({leader.client_host})")


def _check(group: ClassicGroup, sync: Sync) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(sync.member_id, sync.group_instance_id)
    if error:
        return error
    if sync.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if sync.protocol_type is not None and sync.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sync.protocol_name is not None and sync.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def on_stored(group: ClassicGroup, then: Completion, error: ErrorCode, now_ms: int) -> list[Effect]:
    """A `Store` is done: all in-sync replicas have it, or it failed."""
    out: list[Effect] = []
    if group.state is GroupState.DEAD:
        return out
    if isinstance(then, AfterStaticRejoin):
        on_static_rejoin_stored(group, then, error, out)
    elif isinstance(then, AfterEmpty):
        if error:
            logger.warning("group %s: its empty generation could not be stored: %s", group.group_id, error.name)
    else:
        _on_assignment_stored(group, then, error, now_ms, out)
    return out


def _on_assignment_stored(group: ClassicGroup, then: AfterSync, error: ErrorCode, now_ms: int, out: list[Effect]) -> None:
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != then.generation_id:
        return  # another rebalance began meanwhile
    if error:
        fail_syncs(group, error, out)
        maybe_prepare_rebalance(group, f"the assignment could not be stored: {error.name}", now_ms, out)
        return
    protocol_type, protocol_name = group.protocol_type, group.protocol_name
    waiting = []
    size = 0
    for member_id, member in group.members.items():
        assignment = member.assignment = then.assignment[member_id]
        size += len(assignment)
        waiter = member.sync_waiter
        if waiter is not None:
            member.sync_waiter = None
            waiting.append((waiter, assignment, member_id, member.session_timeout_ms))
    group.count_assignments(size)
    group.transition_to(GroupState.STABLE, now_ms)

    def effects() -> Iterator[Reply | Arm]:
        for waiter, assignment, member_id, session_timeout_ms in waiting:
            yield Reply(waiter, SyncResult(ErrorCode.NONE, protocol_type, protocol_name, assignment))
            yield Arm(member_id, session_timeout_ms)

    out.append(Many(effects(), len(group.members)))
