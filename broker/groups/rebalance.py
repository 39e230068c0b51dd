"""Runs a rebalance: all members have to join again; those that joined form the next generation, and its leader assigns the partitions.

The module is a part of the state machine of a group; `joining`, `syncing` and `membership` call it. Pure functions change the group and add
effects to `out`. `on_timer` is the event of every timer.

Invariants: in PreparingRebalance the join timer is armed, so a rebalance ends. Afterwards the sync timer is armed until every member has
sent its SyncGroup, so a member that never sends one is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.broker.coordination.effects import Arm, Disarm, Many, Reply
from ottla.broker.groups.classic_group import NO_MEMBER_ID, ClassicGroup, Member
from ottla.broker.groups.effects import (
    AfterEmpty,
    Effect,
    JoinResult,
    Store,
    SyncResult,
    Timer,
    TimerKey,
    arm_session,
    reply_to_join,
    reply_to_sync,
)
from ottla.broker.groups.group import GroupState
from ottla.broker.groups.records import group_value
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

LEAST_WAIT_MS = 1_000
"""Shortest wait for static members that did not join, ms; a rebalance timeout of 0 would make the timer fire every millisecond."""
MAX_REASON = 255
"""The part of a member's reason that is logged, characters; Java clients send no more (KIP-800)."""


def reason_of(given: str | None) -> str:
    """Why a member joins or leaves, in its own words, for the log."""
    return given[:MAX_REASON] if given else "not provided"


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
