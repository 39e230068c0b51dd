"""Declares the interface of a group for offsets, lists and metrics, whatever its type; `classic_group` is one type.

A group of any type is kept in a partition of `__consumer_offsets`, has committed offsets, and lives as long as it has offsets or members.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.coordination.groups.metadata_bytes import MetadataBytes
    from ottla.coordination.groups.offsets import GroupOffsets
    from ottla.coordination.partitions.effects import Arm
    from ottla.protocol.errors import ErrorCode
    from ottla.replication.waiting.timing_wheel import TimerTask


class GroupState(Enum):
    """Kafka's names, as DescribeGroups and ListGroups show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    """The broker has to compute a new target; only groups of the new protocol."""
    RECONCILING = "Reconciling"
    """Members do not have their parts of the target yet; only groups of the new protocol."""
    STABLE = "Stable"
    DEAD = "Dead"


FIRST_COMMIT_WITH_NEW_ERRORS: Final = 9
FIRST_TXN_COMMIT_WITH_NEW_ERRORS: Final = 6
"""Versions of OffsetCommit and TxnOffsetCommit. Clients with earlier ones do not know the error codes of the new protocol."""


class Committer(NamedTuple):
    """The sender of an OffsetCommit or a TxnOffsetCommit."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    """Also the epoch of a member of the new protocol."""
    is_transactional: bool
    version: int
    """The version of the request."""
    partitions: Callable[[], Iterable[tuple[bytes, Iterable[int]]]] = tuple
    """The partitions that it commits, by topic id."""

    @property
    def knows_new_errors(self) -> bool:
        """Whether the version of the request has the error codes STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND."""
        return self.version >= (FIRST_TXN_COMMIT_WITH_NEW_ERRORS if self.is_transactional else FIRST_COMMIT_WITH_NEW_ERRORS)


class Expiry(NamedTuple):
    """Offsets age from `since_ms` on, or from their commit on when that is None; those of subscribed topics do not."""

    since_ms: int | None
    subscribed_topics: frozenset[str] = frozenset()


class Group(Protocol):
    """See the module. Attributes are read freely; `timers` is the runner's."""

    group_id: str
    metadata: MetadataBytes
    offsets: GroupOffsets
    timers: dict[Hashable, TimerTask]

    @property
    def generation_id(self) -> int:
        """The generation, or the epoch."""

    @property
    def protocol_type(self) -> str | None:
        """The type of the protocol of the members, which they chose."""

    @property
    def state(self) -> GroupState:
        """The state, as ListGroups shows it."""

    @property
    def group_type(self) -> str:
        """Kafka's name of the type, in small letters, as ListGroups shows it."""

    @property
    def is_dead(self) -> bool:
        """Whether nothing happens to the group any more: it was deleted, or went to another coordinator."""

    def session_key(self, member_id: str) -> Hashable:
        """The key of the timer of a member's session."""

    def end(self, now_ms: int) -> None:
        """The group is dead from now on."""

    def tombstones(self) -> list[bytes]:
        """The keys of the group's own records in the log; not those of its offsets."""

    def on_commit(self, committer: Committer) -> tuple[ErrorCode, list[Arm]]:
        """Whether the sender may commit offsets now, and the effects of hearing of a member."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the sender may fetch offsets as a member in its epoch."""

    def check_offset_deletion(self) -> ErrorCode:
        """Whether offsets may be deleted of topics that no member subscribes to."""

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None when they are unknown."""

    def read_subscriptions(self) -> Iterator[None]:
        """Learn the topics that members subscribe to, with a step between two pauses."""

    def forget_subscriptions(self) -> None:
        """Free what `read_subscriptions` has learned."""

    def expiry(self) -> Expiry | None:
        """The rule for the age of the group's offsets (KIP-211); None while none of them may expire, nor the group itself."""
