"""Decides on heartbeats, on LeaveGroup, and on groups that are loaded or unloaded with their partition. Part of the state machine of a
group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.coordination.groups.classic_group import NO_MEMBER_ID, ClassicGroup
from ottla.coordination.groups.effects import Effect, JoinResult, SyncResult
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.rebalance import prepare_rebalance, remove_member, remove_pending_member
from ottla.coordination.partitions.effects import Arm, Many, Reply
from ottla.protocol.errors import ErrorCode


def on_heartbeat(group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int) -> tuple[ErrorCode, list[Effect]]:
    """Heartbeat of a member. REBALANCE_IN_PROGRESS makes it join again."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
    error = group.check_member(member_id, group_instance_id)
    if error:
        return error, []
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION, []
    out: list[Effect] = [Arm(member_id, group.members[member_id].session_timeout_ms)]
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS, out
    return ErrorCode.NONE, out


class Leaving(NamedTuple):
    """The member that is to leave. A static member may be named by its group.instance.id alone."""

    member_id: str
    group_instance_id: str | None
    reason: str = "not provided"


def on_leave(group: ClassicGroup, leaving: Iterable[Leaving], now_ms: int) -> tuple[ErrorCode, list[ErrorCode], list[Effect]]:
    """(error of all, error of each, effects): members leave, or an operator removes them."""
    out: list[Effect] = []
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], out
    return ErrorCode.NONE, [_leave(group, each, now_ms, out) for each in leaving], out


def _leave(group: ClassicGroup, leaving: Leaving, now_ms: int, out: list[Effect]) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        current = None if leaving.group_instance_id is None else group.static_members.get(leaving.group_instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = current
    elif member_id in group.pending_members:
        remove_pending_member(group, member_id, now_ms, out)
        return ErrorCode.NONE
    else:
        error = group.check_member(member_id, leaving.group_instance_id)
        if error:
            return error
    remove_member(group, group.members[member_id], f"{member_id} left; its reason: {leaving.reason}", now_ms, out)
    return ErrorCode.NONE


def on_loaded(group: ClassicGroup, now_ms: int) -> list[Effect]:
    """The group was loaded from the log: its members have a session timeout to send a request."""
    out: list[Effect] = []
    if len(group.members) > group.settings.max_size:
        prepare_rebalance(group, f"it has more members than group.max.size, {group.settings.max_size}", now_ms, out)
    members = list(group.members.values())
    out.append(Many((Arm(member.member_id, member.session_timeout_ms) for member in members), len(members)))
    return out


def on_unloaded(group: ClassicGroup, now_ms: int) -> list[Effect]:
    """This broker no longer coordinates the group: waiting members get an error that makes them look for the coordinator."""
    group.transition_to(GroupState.DEAD, now_ms)
    members = list(group.members.values())

    def effects() -> Iterator[Reply]:
        for member in members:
            if (waiter := group.take_join_waiter(member)) is not None:
                yield Reply(waiter, JoinResult(member.member_id, ErrorCode.NOT_COORDINATOR))
            if (waiter := member.sync_waiter) is not None:
                member.sync_waiter = None
                yield Reply(waiter, SyncResult(ErrorCode.NOT_COORDINATOR))

    return [Many(effects(), len(members))]
