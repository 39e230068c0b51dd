"""Heartbeats, leaving, and groups that come and go with the partition they are stored in. Part of the state machine of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.coordination.effects import Arm
from broker.groups.effects import Effect, JoinResult, SyncResult, arm_session, reply_to_join, reply_to_sync
from broker.groups.group import NO_MEMBER_ID, Group, GroupState
from broker.groups.joining import check_member
from broker.groups.rebalance import prepare_rebalance, remove_member, remove_pending_member
from protocol.errors import ErrorCode


def on_heartbeat(group: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> tuple[ErrorCode, list[Effect]]:
    """A member lives. REBALANCE_IN_PROGRESS tells it to join again."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
    error = check_member(group, member_id, group_instance_id)
    if error:
        return error, []
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION, []
    out: list[Effect] = [Arm(member_id, group.members[member_id].session_timeout_ms)]
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS, out
    return ErrorCode.NONE, out


class Leaving(NamedTuple):
    """Who is to leave. A static member may be named by its group.instance.id alone."""

    member_id: str
    group_instance_id: str | None
    reason: str = "not provided"


def on_leave(group: Group, leaving: Iterable[Leaving], now_ms: int) -> tuple[ErrorCode, list[ErrorCode], list[Effect]]:
    """(error of all, error of each, effects): members leave, or an operator puts them out."""
    out: list[Effect] = []
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], out
    return ErrorCode.NONE, [_leave(group, each, now_ms, out) for each in leaving], out


def _leave(group: Group, leaving: Leaving, now_ms: int, out: list[Effect]) -> ErrorCode:
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
        error = check_member(group, member_id, leaving.group_instance_id)
        if error:
            return error
    remove_member(group, group.members[member_id], f"{member_id} left; its reason: {leaving.reason}", now_ms, out)
    return ErrorCode.NONE


def check_commit(group: Group, member_id: str, group_instance_id: str | None, generation_id: int, *, is_transactional: bool) -> ErrorCode:
    """Whether somebody may commit offsets: a member of this generation, or anybody while the group has none."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id >= 0 or member_id != NO_MEMBER_ID or group_instance_id is not None:
        error = check_member(group, member_id, group_instance_id)
        if error:
            return error
        return ErrorCode.NONE if generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION
    if not is_transactional and group.state is not GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def on_commit(group: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> tuple[ErrorCode, list[Effect]]:
    """Somebody commits offsets: whether it may, and that a member was heard of."""
    error = check_commit(group, member_id, group_instance_id, generation_id, is_transactional=False)
    if error:
        return error, []
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS, []
    member = group.members.get(member_id)
    return ErrorCode.NONE, [] if member is None else [Arm(member_id, member.session_timeout_ms)]


def on_loaded(group: Group, now_ms: int) -> list[Effect]:
    """The group was read from the log: its members have a session timeout to be heard of."""
    out: list[Effect] = []
    if len(group.members) > group.settings.max_size:
        prepare_rebalance(group, f"it has more members than group.max.size, {group.settings.max_size}", now_ms, out)
    for member in group.members.values():
        arm_session(member, out)
    return out


def on_unloaded(group: Group, now_ms: int) -> list[Effect]:
    """This broker coordinates the group no more: whoever waits is sent to look for the coordinator."""
    out: list[Effect] = []
    group.transition_to(GroupState.DEAD, now_ms)
    for member in group.members.values():
        reply_to_join(group, member, JoinResult(member.member_id, ErrorCode.NOT_COORDINATOR), out)
        reply_to_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR), out)
    return out
