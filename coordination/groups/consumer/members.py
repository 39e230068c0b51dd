"""Declares a member of a consumer group: what it asked for, how far it has come, and the partitions that it has.

A member never changes; each change of it makes another one. So a thread can compute a target from a copy of the dict of members.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from ottla.coordination.groups.classic_group import Protocols, size_of
from ottla.coordination.groups.metadata_bytes import name_bytes

JOINING: Final = 0
"""The member epoch of a member that joins."""
LEAVING: Final = -1
"""The member epoch of a member that leaves."""
LEAVING_FOR_A_WHILE: Final = -2
"""The member epoch of a static member that leaves and will return."""

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which it was assigned; no topic without partitions."""

NAME_BYTES: Final = 64
"""The memory for a name in a subscription, besides its characters."""

NOTHING: Final[Mapping[bytes, Mapping[int, int]]] = {}


class MemberState(IntEnum):
    """How far a member has come towards its target, by its number in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has to give up partitions first."""
    UNRELEASED_PARTITIONS = 2
    """Other members still have partitions of the target."""
    UNKNOWN = 127
    """A state that only a later release knows."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state of a number in the log."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class ClassicPart(NamedTuple):
    """A member of the classic protocol in a group of the new one: the session timeout and the protocols of its JoinGroup."""

    session_timeout_ms: int
    protocols: Protocols


class Member(NamedTuple):
    """See the module."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """The names in its subscription, in order."""
    regex: str | None = None
    """The regular expression in its subscription; an empty one is none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicPart | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING
    """Partitions that the member has to give up."""

    @property
    def metadata_bytes(self) -> int:
        """The memory for the member's names and its subscription, bytes."""
        of_names = name_bytes(self.member_id, self.instance_id, self.rack_id, self.client_id)
        of_classic = 0 if self.classic is None else size_of(self.classic.protocols)
        return of_names + sum(map(len, self.topics)) + NAME_BYTES * len(self.topics) + len(self.regex or "") + of_classic

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether the member has exactly its target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def at_epoch(self, epoch: int) -> Member:
        """The member in an epoch, which may be the current one."""
        return self if epoch == self.epoch else self._replace(epoch=epoch, previous_epoch=self.epoch)

    def with_progress_of(self, other: Member) -> Member:
        """The member with the epochs, the state and the partitions of another one."""
        return self._replace(
            epoch=other.epoch, previous_epoch=other.previous_epoch, state=other.state, assigned=other.assigned, revoking=other.revoking
        )

    def owns_all(self, partitions: Mapping[bytes, AbstractSet[int]]) -> bool:
        """Whether all of these are assigned to the member."""
        assigned = self.assigned
        return all(assigned.get(topic, {}).keys() >= indexes for topic, indexes in partitions.items())

    def epoch_of(self, topic: bytes, index: int) -> int | None:
        """The epoch in which the member got a partition that it has, or has to give up; None for any other partition."""
        since = self.assigned.get(topic, {}).get(index)
        return self.revoking.get(topic, {}).get(index) if since is None else since


def indexes_of(owned: Owned) -> dict[bytes, frozenset[int]]:
    """The partitions alone."""
    return {topic: frozenset(partitions) for topic, partitions in owned.items()}
