"""Declares the timers of a consumer group, all of which are about a member."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class TimerKind(StrEnum):  # the hash of a str is computed in C
    """The event that prevents the removal of the member, if it happens before the timer is due."""

    SESSION = "session"
    """A heartbeat."""
    REBALANCE = "rebalance"
    """The member has to give up partitions."""
    JOIN = "join"
    """A member of the classic protocol has to join again."""
    SYNC = "sync"
    """A member of the classic protocol has to ask for its assignment."""


class MemberTimer(NamedTuple):
    """The key of a timer."""

    kind: TimerKind
    member_id: str
