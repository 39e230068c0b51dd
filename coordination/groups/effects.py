"""Declares the effects of the state machine of a group, in addition to `coordination.effects`: results of replies, and records to store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from ottla.coordination.groups.classic_group import NO_GENERATION, ClassicGroup, Member, MemberMetadata, Protocols
from ottla.coordination.partitions.effects import Arm, Disarm, Many, Reply
from ottla.protocol.errors import ErrorCode


class JoinResult(NamedTuple):
    """The answer to a JoinGroup."""

    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = ""
    skip_assignment: bool = False
    members: list[MemberMetadata] | None = None


class SyncResult(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeaveResult(NamedTuple):
    """The answer to a LeaveGroup: the error of all, or the error of each."""

    error: ErrorCode = ErrorCode.NONE
    errors: Sequence[ErrorCode] = ()


JoinReply: TypeAlias = Callable[[JoinResult], None]
SyncReply: TypeAlias = Callable[[SyncResult], None]
LeaveReply: TypeAlias = Callable[[LeaveResult], None]


class Timer(Enum):
    """Timers of which a group has at most one each. A member's session timer has the member id as its key."""

    JOIN = "join"
    SYNC = "sync"


TimerKey: TypeAlias = "Timer | str"


class AfterSync(NamedTuple):
    """Continues after the leader's assignment of a generation is stored."""

    generation_id: int
    assignment: Mapping[str, bytes]


class AfterEmpty(NamedTuple):
    """Continues after the record of the empty group is stored; no member waits for it."""


class AfterStaticRejoin(NamedTuple):
    """Continues after a static member's new id is stored; the new id is revoked if that fails."""

    member: Member
    old_member_id: str
    new_member_id: str
    old_leader_id: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    supports_skipping_assignment: bool


Completion: TypeAlias = AfterSync | AfterEmpty | AfterStaticRejoin


class Store(NamedTuple):
    """Append the group's metadata record, and call `on_stored` with `then` and the result when all in-sync replicas have it."""

    value: bytes
    then: Completion


Effect: TypeAlias = Reply | Arm | Disarm | Store | Many


def reply_to_join(group: ClassicGroup, member: Member, result: JoinResult, out: list[Effect]) -> None:
    """Answer the member's JoinGroup, if one waits."""
    waiter = group.take_join_waiter(member)
    if waiter is not None:
        out.append(Reply(waiter, result))


def reply_to_sync(member: Member, result: SyncResult, out: list[Effect]) -> bool:
    """Answer the member's SyncGroup; False when none waits."""
    waiter = member.sync_waiter
    if waiter is None:
        return False
    member.sync_waiter = None
    out.append(Reply(waiter, result))
    return True


def arm_session(member: Member, out: list[Effect]) -> None:
    """The member sent a request: its session lasts for another session timeout."""
    out.append(Arm(member.member_id, member.session_timeout_ms))
