"""Declares the effects of consumer groups, in addition to `coordination.effects`: records to write, and work for threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ottla.coordination.groups.consumer.assignors import Assignment
from ottla.coordination.groups.consumer.members import Member
from ottla.coordination.groups.consumer.reconciliation import Held
from ottla.coordination.groups.consumer.records import Pair, Record, Resolved
from ottla.coordination.groups.consumer.topics import Topics
from ottla.coordination.partitions.effects import Arm, Disarm, Reply
from ottla.protocol.errors import ErrorCode


class Beat(NamedTuple):
    """A ConsumerGroupHeartbeat. None and -1 mean that a field has not changed."""

    waiter: BeatReply
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    """In order, each once."""
    regex: str | None = None
    assignor: str | None = None
    held: Held | None = None
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] = lambda topic: True
    """Whether the sender may see a topic that a regular expression matches."""

    @property
    def is_full(self) -> bool:
        """Whether the member says all of itself, because it joins, or does not know which answer reached it."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.epoch == 0 or (self.rebalance_timeout_ms != -1 and has_subscription and self.held is not None)


class BeatResult(NamedTuple):
    """The answer to a heartbeat."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


BeatReply: TypeAlias = Callable[[BeatResult], None]


class Write(NamedTuple):
    """Append records as one batch, and apply them to the group. If that fails, nothing changes: replies get the error, and `otherwise` is
    carried out."""

    records: tuple[Record, ...]
    replies: tuple[Reply, ...] = ()
    """Answers when all in-sync replicas have the records."""
    otherwise: tuple[Arm, ...] = ()


class ResolveRegexes(NamedTuple):
    """Evaluate the regular expressions in a thread, and continue with `on_resolved`. Topics are those that the sender may see."""

    regexes: frozenset[str]
    may_describe: Callable[[str], bool]


class Convert(NamedTuple):
    """Write the group as a classic group, without the members that leave, and replace it."""

    without: frozenset[str]
    replies: tuple[Reply, ...] = ()
    otherwise: tuple[Arm, ...] = ()
    """See Write."""


class Initialize(NamedTuple):
    """Of share groups: initialize the state of partitions at the share coordinator, in this epoch. By topic id, its name and partitions."""

    partitions: Mapping[bytes, tuple[str, frozenset[int]]]
    epoch: int


ConsumerEffect: TypeAlias = Reply | Arm | Disarm | Write | ResolveRegexes | Convert | Initialize


class CheckRegex(NamedTuple):
    """Work for a thread: the reason why a regular expression is not valid; None for a valid one."""

    regex: str


class ComputeTarget(NamedTuple):
    """Work for a thread: the `targets.Computed` of a group whose members are these."""

    epoch: int
    assignor: str
    members: Mapping[str, Member]
    target: Mapping[str, Assignment]
    """The target before this one, by member."""
    regexes: Mapping[str, Resolved]
    topics: Topics
    pairs_of: Callable[[Iterable[Record]], list[Pair]]
    """Encodes records of the group."""


class Compute(NamedTuple):
    """Work for a thread: a pure function without errors."""

    run: Callable[[], Any]


Decision: TypeAlias = Generator[CheckRegex | ComputeTarget | Compute, Any, list[ConsumerEffect]]
"""A decision of the state machine. It yields work that takes long, and continues with the result. Meanwhile no other event changes the
group."""
