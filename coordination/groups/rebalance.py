"""Runs a rebalance of a classic group: all members have to join again; those that joined form the next generation, and its leader assigns
the partitions. Decides on JoinGroup: new members, members that join again, and static members that return under a new member id.

The module is a part of the state machine of a group; `syncing` and `membership` call it. Pure functions change the group and add effects to
`out`. `on_join` is the event of a JoinGroup, `on_timer` that of every timer.

From version 4 on a new member gets a member id and has to join again with it (KIP-394). So a client whose answers are lost does not fill
the group with members that do not exist. A static member (KIP-345) that joins without a member id replaces its former member. The group
then rebalances only if its protocol changes. The answer may make a static leader skip the assignment (KIP-814).

Invariants: in PreparingRebalance the join timer is armed, so a rebalance ends. Afterwards the sync timer is armed until every member has
sent its SyncGroup, so a member that never sends one is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from ottla.coordination.groups.classic_group import NO_MEMBER_ID, ClassicGroup, Member, Protocols, size_of
from ottla.coordination.groups.effects import (
    AfterEmpty,
    AfterStaticRejoin,
    Effect,
    JoinReply,
    JoinResult,
    Store,
    SyncResult,
    Timer,
    TimerKey,
    arm_session,
    reply_to_join,
    reply_to_sync,
)
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.metadata_bytes import MEMBER_BYTES, PENDING_BYTES, name_bytes
from ottla.coordination.groups.records import group_value, is_too_long, member_part
from ottla.coordination.partitions.effects import Arm, Disarm, Many, Reply
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Longest wait of a new member for its first rebalance; the client cannot send heartbeats meanwhile, and may have ended."""

LEAST_WAIT_MS = 1_000
"""Shortest wait for static members that did not join, ms; a rebalance timeout of 0 would make the timer fire every millisecond."""
MAX_REASON = 255
"""The part of a member's reason that is logged, characters; Java clients send no more (KIP-800)."""


def reason_of(given: str | None) -> str:
    """Why a member joins or leaves, in its own words, for the log."""
    return given[:MAX_REASON] if given else "not provided"


# -- JoinGroup ---------------------------------------------------------------------------------------------------------------


class Join(NamedTuple):
    """A JoinGroup, whose sender waits as `waiter`. `uuid` is new, for the member id of a new member."""

    waiter: JoinReply
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


def on_join(group: ClassicGroup, join: Join, now_ms: int) -> list[Effect]:
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


def _refuse(join: Join, error: ErrorCode, out: list[Effect], member_id: str | None = None) -> None:
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


def _has_room_for_metadata(group: ClassicGroup, join: Join) -> bool:
    """Whether the names and metadata of all members stay within the limits. A member whose metadata do not grow may always join again.

    The log has one protocol of each member. So a loaded member may join with the others again, within the limit of its group. A client that
    is to get a member id first needs the room of a member, because it will join with the same metadata.
    """
    client = f"{join.client_id} ({join.client_host})"
    member_id = join.member_id or group.static_members.get(join.group_instance_id or "", NO_MEMBER_ID)
    member = group.members.get(member_id)
    if member is not None:
        more = size_of(join.protocols) - size_of(member.protocols)
        return not group.metadata.refuse(more, group.group_id, client, returns=not member.has_all_protocols)
    more = size_of(join.protocols) + name_bytes(member_id or _new_member_id(join), join.client_id, join.group_instance_id)
    objects = MEMBER_BYTES
    if member_id in group.pending_members:
        more -= name_bytes(member_id)
        objects -= PENDING_BYTES
    return not group.metadata.refuse(more, group.group_id, client, objects=objects)


def _new_member_id(join: Join) -> str:
    return f"{join.client_id if join.group_instance_id is None else join.group_instance_id}-{join.uuid}"


def _newcomer(group: ClassicGroup, join: Join, now_ms: int, out: list[Effect]) -> None:
    instance_id = join.group_instance_id
    member_id = _new_member_id(join)
    if is_too_long(member_id):
        _refuse(join, ErrorCode.INVALID_REQUEST, out)
    elif instance_id is not None:
        old_member_id = group.static_members.get(instance_id)
        if old_member_id is None:
            _add(group, join, member_id, now_ms, out)
        else:
            _replace_static_member(group, join, group.members[old_member_id], member_id, now_ms, out)
    elif join.requires_known_member_id:
        group.add_pending(member_id)
        out.append(Arm(member_id, join.session_timeout_ms))
        _refuse(join, ErrorCode.MEMBER_ID_REQUIRED, out, member_id)
    else:
        _add(group, join, member_id, now_ms, out)


def _pending_member(group: ClassicGroup, join: Join, now_ms: int, out: list[Effect]) -> None:
    if join.group_instance_id is not None:
        # Static members are never pending; Apache Kafka fails on an assertion here.
        _refuse(join, ErrorCode.UNKNOWN_SERVER_ERROR, out, member_id=NO_MEMBER_ID)
        return
    _add(group, join, join.member_id, now_ms, out)


def _add(group: ClassicGroup, join: Join, member_id: str, now_ms: int, out: list[Effect]) -> None:
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


def _member(group: ClassicGroup, join: Join, now_ms: int, out: list[Effect]) -> None:
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


def _update(group: ClassicGroup, member: Member, join: Join, out: list[Effect]) -> None:
    # Two JoinGroups of one member: the client gave up the first, or two clients share an id. The first must not wait forever.
    reply_to_join(group, member, JoinResult(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS), out)
    group.update(member, join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms, join.waiter)
    if member.record_part is None:
        member.record_part = member_part(member, join.protocols[0][0])


def _replace_static_member(group: ClassicGroup, join: Join, member: Member, new_member_id: str, now_ms: int, out: list[Effect]) -> None:
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


# -- the rebalance -----------------------------------------------------------------------------------------------------------


def maybe_prepare_rebalance(group: ClassicGroup, reason: str, now_ms: int, out: list[Effect]) -> None:
    """Begin a rebalance, unless one is in preparation."""
    if group.can_rebalance:
        prepare_rebalance(group, reason, now_ms, out)


def prepare_rebalance(group: ClassicGroup, reason: str, now_ms: int, out: list[Effect]) -> None:
    """Begin a rebalance. That of an empty group waits for more members first (KIP-134)."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, out)
    group.pending_syncs.clear()
    out.append(Disarm(Timer.SYNC))
    logger.info("group %s: a rebalance follows generation %d: %s", group.group_id, group.generation_id, reason)
    if group.state is GroupState.EMPTY:
        delay_ms = group.settings.initial_rebalance_delay_ms
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        out.append(Arm(Timer.JOIN, delay_ms))
        return
    group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
    out.append(Arm(Timer.JOIN, group.rebalance_timeout_ms))
    maybe_complete_join(group, now_ms, out)


def maybe_complete_join(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    """Complete the rebalance in preparation if all members have joined, and it need not wait for new members."""
    if group.state is GroupState.PREPARING_REBALANCE and group.initial_delay_ms is None and group.has_all_members_joined:
        complete_join(group, now_ms, out)


def complete_join(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    """Continue with the members that joined. Dynamic members that did not join are removed; static members have time until their session
    ends."""
    group.initial_delay_ms = None
    waiters = group.join_waiters
    missing = []
    if len(waiters) < len(group.members):
        missing = [member for member_id, member in group.members.items() if member_id not in waiters and not member.is_static]
    for member in missing:
        group.remove(member.member_id)
        out.append(Disarm(member.member_id))
    if missing:
        logger.info("group %s: %d members did not join the rebalance in time and are removed", group.group_id, len(missing))
    if not _elect_joined_leader(group) and group.members:
        logger.info("group %s: no member joined the rebalance; it waits once more for its static members", group.group_id)
        out.append(Arm(Timer.JOIN, max(LEAST_WAIT_MS, group.rebalance_timeout_ms)))
        return
    out.append(Disarm(Timer.JOIN))
    group.next_generation(now_ms)
    if group.state is GroupState.EMPTY:
        logger.info("group %s is empty now, generation %d", group.group_id, group.generation_id)
        out.append(Store(group_value(group, {}), AfterEmpty()))
        return
    logger.info(
        "group %s: generation %d has %d members, protocol %s", group.group_id, group.generation_id, len(group.members), group.protocol_name
    )
    _answer_joined(group, out)
    group.pending_syncs.update(group.members)
    if group.rebalance_timeout_ms == 0:
        _on_sync_timeout(group, now_ms, out)  # no member can send a SyncGroup in zero time, and with a timer the result would be random
    else:
        out.append(Arm(Timer.SYNC, group.rebalance_timeout_ms))


def _answer_joined(group: ClassicGroup, out: list[Effect]) -> None:
    """Do for all members what `joined`, `reply_to_join` and `arm_session` do for one: decide at once, and carry it out in parts."""
    leader_id = group.leader_id
    members = list(group.members.items())
    waiters, group.join_waiters = group.join_waiters, {}
    group.newcomers.clear()
    generation_id, protocol_type, protocol_name = group.generation_id, group.protocol_type, group.protocol_name
    everybody = group.member_metadata() if leader_id is not None else None

    def effects() -> Iterator[Reply | Arm]:
        for member_id, member in members:
            waiter = waiters.get(member_id)
            if waiter is not None:
                told = everybody if member_id == leader_id else None
                result = JoinResult(member_id, ErrorCode.NONE, generation_id, protocol_type, protocol_name, leader_id, False, told)
                yield Reply(waiter, result)
            yield Arm(member_id, member.session_timeout_ms)

    out.append(Many(effects(), len(members)))


def joined(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> JoinResult:
    """The answer to a member of the current generation; the leader gets the metadata of all members."""
    member_id = member.member_id
    leader_id = group.leader_id
    return JoinResult(
        member_id,
        ErrorCode.NONE,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        leader_id,
        skip_assignment,
        group.member_metadata() if leader_id == member_id else None,
    )


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """Make a member that joined this rebalance the leader; False if none joined."""
    if group.leader_id is None:
        return False
    if group.leader_id in group.join_waiters:
        return True
    for member_id in group.members:
        if member_id in group.join_waiters:
            logger.info("group %s: leader %s did not join in time, %s leads now", group.group_id, group.leader_id, member_id)
            group.leader_id = member_id
            return True
    return False


def fail_syncs(group: ClassicGroup, error: ErrorCode, out: list[Effect]) -> None:
    """This generation gets no assignment."""
    for member in group.members.values():
        member.assignment = b""
        if reply_to_sync(member, SyncResult(error), out):
            arm_session(member, out)


def on_member_synced(group: ClassicGroup, member: Member, out: list[Effect]) -> None:
    """A member sent its SyncGroup; after the last one the sync timer ends."""
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        out.append(Disarm(Timer.SYNC))


def remove_member(group: ClassicGroup, member: Member, reason: str, now_ms: int, out: list[Effect]) -> None:
    """A member was removed: the others rebalance."""
    reply_to_join(group, member, JoinResult(NO_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID), out)
    reply_to_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID), out)
    group.remove(member.member_id)
    out.append(Disarm(member.member_id))
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        maybe_prepare_rebalance(group, reason, now_ms, out)
    else:
        maybe_complete_join(group, now_ms, out)


def remove_pending_member(group: ClassicGroup, member_id: str, now_ms: int, out: list[Effect]) -> None:
    """A client that got a member id does not join again with it."""
    group.remove(member_id)
    out.append(Disarm(member_id))
    maybe_complete_join(group, now_ms, out)


# -- timers ------------------------------------------------------------------------------------------------------------------


def on_timer(group: ClassicGroup, key: TimerKey, now_ms: int) -> list[Effect]:
    """An armed timer is due."""
    out: list[Effect] = []
    if group.state is GroupState.DEAD:
        return out
    if key is Timer.JOIN:
        _on_join_timeout(group, now_ms, out)
    elif key is Timer.SYNC:
        _on_sync_timeout(group, now_ms, out)
    else:
        assert isinstance(key, str)
        _on_session_timeout(group, key, now_ms, out)
    return out


def _on_join_timeout(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    delay_ms = group.initial_delay_ms
    if delay_ms is not None and group.new_member_added and group.initial_remaining_ms:
        # A new member joined while the group waited, so wait for others, but no longer than a rebalance may take.
        group.new_member_added = False
        remaining_ms = group.initial_remaining_ms
        group.initial_delay_ms = min(group.settings.initial_rebalance_delay_ms, remaining_ms)
        group.initial_remaining_ms = max(remaining_ms - delay_ms, 0)
        out.append(Arm(Timer.JOIN, group.initial_delay_ms))
        return
    complete_join(group, now_ms, out)


def _on_sync_timeout(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
        return
    late = list(group.pending_syncs)
    for member_id in late:
        # A static member that came back meanwhile may wait until its new id is stored.
        reply_to_join(group, group.members[member_id], JoinResult(NO_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID), out)
        group.remove(member_id)
        out.append(Disarm(member_id))
    prepare_rebalance(group, f"{len(late)} members did not ask for their assignment in time", now_ms, out)


def _on_session_timeout(group: ClassicGroup, member_id: str, now_ms: int, out: list[Effect]) -> None:
    if member_id in group.pending_members:
        logger.info("group %s: %s was given a member id and did not join with it in time", group.group_id, member_id)
        remove_pending_member(group, member_id, now_ms, out)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    # A member that waits for an answer sends no heartbeats. Newcomers are an exception, for a lost one would hold up the first rebalance.
    if member_id not in group.newcomers and (member_id in group.join_waiters or member.sync_waiter is not None):
        return
    logger.info("group %s: nothing was heard of member %s for its session timeout; it is removed", group.group_id, member_id)
    remove_member(group, member, f"the session of {member_id} ended", now_ms, out)
