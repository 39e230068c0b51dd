"""Declares the interface of a group for offsets, lists and metrics, whatever its type; `classic_group` is one type.

A group of any type is kept in a partition of `__consumer_offsets`, has committed offsets, and lives as long as it has offsets or members.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import Arm
    from ottla.broker.groups.offsets import GroupOffsets
    from ottla.broker.loop.timing_wheel import Cancellable
    from ottla.protocol.errors import ErrorCode


class GroupState(Enum):
    """Kafka's names, as DescribeGroups and ListGroups show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Expiry(NamedTuple):
    """Offsets age from `since_ms` on, or from their commit on when that is None; those of subscribed topics do not."""

    since_ms: int | None
    subscribed_topics: frozenset[str] = frozenset()


class Group(Protocol):
    """See the module. Attributes are read freely; `timers` is the runner's."""

    group_id: str
    generation_id: int
    protocol_type: str | None
    state: GroupState
    offsets: GroupOffsets
    timers: dict[Hashable, Cancellable]

    @property
    def group_type(self) -> str:
        """Kafka's name of the type, in small letters, as ListGroups shows it."""

    @property
    def is_dead(self) -> bool:
        """Whether nothing happens to the group any more: it was deleted, or went to another coordinator."""

    def end(self, now_ms: int) -> None:
        """The group is dead from now on."""

    def tombstones(self) -> list[bytes]:
        """The keys of the group's own records in the log; not those of its offsets."""

    def on_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, *, is_transactional: bool
    ) -> tuple[ErrorCode, list[Arm]]:
        """Whether the sender may commit offsets now, and the effects of hearing of a member."""

    def check_offset_deletion(self) -> ErrorCode:
        """Whether offsets may be deleted of topics that no member subscribes to."""

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None when they are unknown."""

    def expiry(self) -> Expiry | None:
        """The rule for the age of the group's offsets (KIP-211); None while none of them may expire."""
