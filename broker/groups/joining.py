"""Decides on JoinGroup: new members, members that join again, and static members that return under a new member id.

The module is a part of the state machine of a group. From version 4 on a new member gets a member id and has to join again with it
(KIP-394). So a client whose answers are lost does not fill the group with members that do not exist. A static member (KIP-345) that joins
without a member id replaces its former member. The group then rebalances only if its protocol changes. The answer may make a static leader
skip the assignment (KIP-814).
"""

from __future__ import annotations

import logging
from typing import Any, Generic, NamedTuple

from ottla.broker.coordination.effects import Arm, Disarm, Reply, Waiter
from ottla.broker.groups.classic_group import NO_MEMBER_ID, ClassicGroup, Member, Protocols, size_of
from ottla.broker.groups.effects import AfterStaticRejoin, Effect, JoinResult, Store, SyncResult, arm_session, reply_to_join, reply_to_sync
from ottla.broker.groups.group import GroupState
from ottla.broker.groups.rebalance import joined, maybe_complete_join, maybe_prepare_rebalance, prepare_rebalance
from ottla.broker.groups.records import group_value, is_too_long, member_part
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Longest wait of a new member for its first rebalance; the client cannot send heartbeats meanwhile, and may have ended."""


class Join(NamedTuple, Generic[Waiter]):
    """A JoinGroup, whose sender waits as `waiter`. `uuid` is new, for the member id of a new member."""

    waiter: Waiter
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str = "not provided"
    requires_known_member_id: bool = False
    supports_skipping_assignment: bool = False
    uuid: str = ""


def on_join(group: ClassicGroup, join: Join[Any], now_ms: int) -> list[Effect]:
    """A client joins the group, or a member joins a rebalance or begins one."""
    out: list[Effect] = []
    if any(map(is_too_long, (join.client_id, join.protocol_type, *[name for name, _ in join.protocols]))):
        _refuse(join, ErrorCode.INVALID_REQUEST, out)
    elif not _has_room_for(group, join.member_id):
        group.remove(join.member_id)
        out.append(Disarm(join.member_id))
        _refuse(join, ErrorCode.GROUP_MAX_SIZE_REACHED, out, member_id=NO_MEMBER_ID)
    elif group.state is GroupState.DEAD:
        _refuse(join, ErrorCode.COORDINATOR_NOT_AVAILABLE, out)
    elif not group.supports_protocols(join.protocol_type, join.protocols):
        _refuse(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, out)
    elif not _has_room_for_metadata(group, join):
        if join.member_id not in group.members:
            group.remove(join.member_id)
            out.append(Disarm(join.member_id))
        _refuse(join, ErrorCode.GROUP_MAX_SIZE_REACHED, out)
    elif join.member_id == NO_MEMBER_ID:
        _newcomer(group, join, now_ms, out)
    elif join.member_id in group.pending_members:
        _pending_member(group, join, now_ms, out)
    else:
        _member(group, join, now_ms, out)
    maybe_complete_join(group, now_ms, out)
    return out


def _refuse(join: Join[Any], error: ErrorCode, out: list[Effect], member_id: str | None = None) -> None:
    out.append(Reply(join.waiter, JoinResult(join.member_id if member_id is None else member_id, error)))


def _has_room_for(group: ClassicGroup, member_id: str) -> bool:
    """Whether group.max.size admits the member. During a rebalance the joined members count: a group that is too large loses those that
    join last."""
    state = group.state
    if state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if state is GroupState.PREPARING_REBALANCE:
        return member_id in group.join_waiters or len(group.join_waiters) < group.settings.max_size
    return member is not None or len(group.members) < group.settings.max_size


def _has_room_for_metadata(group: ClassicGroup, join: Join[Any]) -> bool:
    """Whether the metadata of all members stay within the limit. A member whose metadata do not grow may always join again."""
    member_id = join.member_id or group.static_members.get(join.group_instance_id or "", NO_MEMBER_ID)
    member = group.members.get(member_id)
    more = size_of(join.protocols) - (0 if member is None else size_of(member.protocols))
    if more <= 0 or group.metadata_bytes + more <= group.settings.max_metadata_bytes:
        return True
    if not group.refuses_metadata:
        group.refuses_metadata = True
        logger.warning(
            "group %s: client %s (%s) is refused: the metadata of its members would take %d bytes more than "
            "ottla.group.max.metadata.bytes=%d; use fewer topics or members, or raise it",
            group.group_id,
            join.client_id,
            join.client_host,
            group.metadata_bytes + more - group.settings.max_metadata_bytes,
            group.settings.max_metadata_bytes,
        )
    return False


def _newcomer(group: ClassicGroup, join: Join[Any], now_ms: int, out: list[Effect]) -> None:
    instance_id = join.group_instance_id
    member_id = f"{join.client_id if instance_id is None else instance_id}-{join.uuid}"
    if is_too_long(member_id):
        _refuse(join, ErrorCode.INVALID_REQUEST, out)
    elif instance_id is not None:
        old_member_id = group.static_members.get(instance_id)
        if old_member_id is None:
            _add(group, join, member_id, now_ms, out)
        else:
            _replace_static_member(group, join, group.members[old_member_id], member_id, now_ms, out)
    elif join.requires_known_member_id:
        group.pending_members.add(member_id)
        out.append(Arm(member_id, join.session_timeout_ms))
        _refuse(join, ErrorCode.MEMBER_ID_REQUIRED, out, member_id)
    else:
        _add(group, join, member_id, now_ms, out)


def _pending_member(group: ClassicGroup, join: Join[Any], now_ms: int, out: list[Effect]) -> None:
    if join.group_instance_id is not None:
        # Static members are never pending; Apache Kafka fails on an assertion here.
        _refuse(join, ErrorCode.UNKNOWN_SERVER_ERROR, out, member_id=NO_MEMBER_ID)
        return
    _add(group, join, join.member_id, now_ms, out)


def _add(group: ClassicGroup, join: Join[Any], member_id: str, now_ms: int, out: list[Effect]) -> None:
    member = Member(
        member_id,
        join.group_instance_id,
        join.client_id,
        join.client_host,
        join.rebalance_timeout_ms,
        join.session_timeout_ms,
        join.protocols,
    )
    if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
        group.new_member_added = True
    group.add(member, join.protocol_type, join.waiter)
    group.newcomers[member_id] = None
    member.record_part = member_part(member, join.protocols[0][0])
    out.append(Arm(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS))
    maybe_prepare_rebalance(group, f"{member_id} is new; its reason: {join.reason}", now_ms, out)


def _member(group: ClassicGroup, join: Join[Any], now_ms: int, out: list[Effect]) -> None:
    error = group.check_member(join.member_id, join.group_instance_id)
    if error or group.state is GroupState.EMPTY:
        _refuse(join, error or ErrorCode.UNKNOWN_MEMBER_ID, out)
        return
    member = group.members[join.member_id]
    state = group.state
    if state is GroupState.COMPLETING_REBALANCE and member.protocols == join.protocols:
        # The answer to its first JoinGroup may have been lost.
        out.append(Reply(join.waiter, joined(group, member)))
        return
    if state is GroupState.STABLE and group.leader_id != member.member_id and member.protocols == join.protocols:
        out.append(Reply(join.waiter, joined(group, member)))
        return
    # A leader that joins a stable group requests a rebalance, because of changes that are not in its metadata (new partitions of a topic).
    _update(group, member, join, out)
    maybe_prepare_rebalance(group, f"{member.member_id} joined again in {state.value}; its reason: {join.reason}", now_ms, out)


def _update(group: ClassicGroup, member: Member, join: Join[Any], out: list[Effect]) -> None:
    # Two JoinGroups of one member: the client gave up the first, or two clients share an id. The first must not wait forever.
    reply_to_join(group, member, JoinResult(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS), out)
    group.update(member, join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms, join.waiter)
    if member.record_part is None:
        member.record_part = member_part(member, join.protocols[0][0])


def _replace_static_member(
    group: ClassicGroup, join: Join[Any], member: Member, new_member_id: str, now_ms: int, out: list[Effect]
) -> None:
    """A static member joins without its member id: it gets a new one, and a client with the old one is fenced."""
    old_leader_id = group.leader_id
    old_member_id = member.member_id
    reply_to_join(group, member, JoinResult(old_member_id, ErrorCode.FENCED_INSTANCE_ID), out)
    reply_to_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID), out)
    before = AfterStaticRejoin(
        member,
        old_member_id,
        new_member_id,
        old_leader_id,
        member.protocols,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        join.supports_skipping_assignment,
    )
    group.rename(member, new_member_id)
    out.append(Disarm(old_member_id))
    group.update(member, join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms, join.waiter)
    arm_session(member, out)
    if group.state is GroupState.STABLE:
        if group.select_protocol() == group.protocol_name:
            # The new id has to be known to the next coordinator too, before the member uses it.
            out.append(Store(group_value(group, {each.member_id: each.assignment for each in group.members.values()}), before))
        else:
            reason = f"static member {join.group_instance_id} came back with another protocol; its reason: {join.reason}"
            maybe_prepare_rebalance(group, reason, now_ms, out)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        reason = f"static member {join.group_instance_id} came back as {new_member_id}; its reason: {join.reason}"
        prepare_rebalance(group, reason, now_ms, out)


def on_static_rejoin_stored(group: ClassicGroup, before: AfterStaticRejoin, error: ErrorCode, out: list[Effect]) -> None:
    """The new id of a static member is stored, or could not be stored and is revoked."""
    member = before.member
    if group.members.get(before.new_member_id) is not member:
        return  # it left, or came back once more; its waiter was answered then
    if group.state is not GroupState.STABLE:
        return  # a rebalance began meanwhile: its end answers, and stores the new id, which may be in an assignment by now
    if error:
        waiter = group.take_join_waiter(member)
        group.update(member, before.old_protocols, before.old_rebalance_timeout_ms, before.old_session_timeout_ms, None)
        group.rename(member, before.old_member_id)
        arm_session(member, out)
        if waiter is not None:
            result = JoinResult(NO_MEMBER_ID, error, group.generation_id, group.protocol_type, group.protocol_name, before.old_leader_id)
            out.append(Reply(waiter, result))
        return
    if before.supports_skipping_assignment:
        result = joined(group, member, skip_assignment=group.leader_id == member.member_id)
    else:
        # The former leader id keeps the client from taking itself for the leader. Its assignment would reach no member.
        result = joined(group, member)._replace(leader_id=before.old_leader_id, members=None)
    reply_to_join(group, member, result, out)
