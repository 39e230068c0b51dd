"""Counts the bytes that the members of groups keep in memory, and refuses members without room.

`MetadataBytes` has those of a group, `MetadataBudget` those of all groups that this broker coordinates. A group counts in the budget as
long as it is found by its id: the table of the groups calls `count_in` and `count_out`. So a group returns its bytes however it ends.

Clients choose the lengths of metadata, assignments and names; these have a limit in each group. A client that sends little may have the
broker make objects that take more. They count, too, but only in the budget of all groups: the number of members has a limit of its own.
"""

from __future__ import annotations

import logging
from typing import Final

logger = logging.getLogger(__name__)

TOLD_AGAIN_BELOW: Final = 0.9
"""The part of the budget that has to be in use at most before the next refusal is logged: members that come and go cause no lines."""

MEMBER_BYTES: Final = 1_024
"""The memory for a member besides its names and metadata: objects, entries, its timer. 1,280 bytes were measured for a classic one."""

PENDING_BYTES: Final = 512
"""The memory for a member id that was given to a client: an entry and a timer. 600 bytes were measured, with a short name."""

GROUP_BYTES: Final = 1_536
"""The memory for a group without members and offsets. 1,540 and 1,600 bytes were measured, for the two types of consumer groups."""


def name_bytes(*names: str | None) -> int:
    """The memory for names that clients choose: a string, and its copy in UTF-8 for the record of the group."""
    size = 0
    for name in names:
        if name is not None:
            size += len(name) * (2 if name.isascii() else 8)
    return size


class MetadataBudget:
    """The bytes of all groups, at most `max_bytes`, of which one group may have `max_bytes_of_group`."""

    __slots__ = ("has_told", "max_bytes", "max_bytes_of_group", "taken")

    def __init__(self, max_bytes: int, max_bytes_of_group: int) -> None:
        self.max_bytes = max_bytes
        self.max_bytes_of_group = max_bytes_of_group
        self.taken = 0
        self.has_told = False
        """Whether a refusal was logged since there was room."""

    def change(self, by: int) -> None:
        """Count bytes that a group takes, or returns if they are negative."""
        self.taken += by
        if self.taken <= self.max_bytes * TOLD_AGAIN_BELOW:
            self.has_told = False

    def refuse(self, more: int, group_id: str, client: str) -> bool:
        """Whether there is no room for `more` bytes of a group, which is logged once."""
        over = self.taken + more - self.max_bytes
        if over > 0 and not self.has_told:
            self.has_told = True
            logger.warning(
                "group %s: client %s is refused, as are others: the metadata of the members of all groups would take %d bytes more than "
                "ottla.all.groups.max.metadata.bytes=%d; use fewer groups, topics or members, or raise it",
                group_id, client, over, self.max_bytes,
            )  # fmt: skip
        return over > 0


class MetadataBytes:
    """The bytes of one group. They have no limit while the group does not count in a budget."""

    __slots__ = ("_budget", "_has_told", "of_group", "of_objects", "taken")

    def __init__(self) -> None:
        self.taken = 0
        """The bytes that clients have sent. `ottla.group.max.metadata.bytes` is the limit."""
        self.of_objects = 0
        """The memory for the group's objects, including `of_group`."""
        self.of_group = 0
        """The memory for the group itself. 0 if it is kept for its records in the log, as are all groups that were loaded."""
        self._budget: MetadataBudget | None = None
        self._has_told = False

    def change(self, by: int) -> None:
        """Count bytes that a member takes, or returns if they are negative."""
        self.taken += by
        if by < 0:
            self._has_told = False
        if self._budget is not None:
            self._budget.change(by)

    def change_objects(self, by: int) -> None:
        """Count memory of objects that come into being, or go if it is negative."""
        self.of_objects += by
        if self._budget is not None:
            self._budget.change(by)

    def change_group(self, to: int) -> None:
        """Count so many bytes for the group itself."""
        self.change_objects(to - self.of_group)
        self.of_group = to

    def count_in(self, budget: MetadataBudget) -> None:
        """The group is found by its id from now on. A repeated call does nothing."""
        if self._budget is None:
            self._budget = budget
            budget.change(self.taken + self.of_objects)

    def count_out(self) -> None:
        """The group is not found any more. A repeated call does nothing."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.change(-self.taken - self.of_objects)

    def refuse(self, more: int, group_id: str, client: str, *, objects: int = 0, returns: bool = False) -> bool:
        """Whether there is no room for `more` bytes of a member, and for its `objects`, which is logged once. There always is for one that
        takes no more. For one that `returns` only the limit of the group counts."""
        budget = self._budget
        if more + objects <= 0 or budget is None:
            return False
        over = self.taken + more - budget.max_bytes_of_group
        if over > 0 and more > 0:
            if not self._has_told:
                self._has_told = True
                logger.warning(
                    "group %s: client %s is refused: the metadata of its members would take %d bytes more than "
                    "ottla.group.max.metadata.bytes=%d; use fewer topics or members, or raise it",
                    group_id, client, over, budget.max_bytes_of_group,
                )  # fmt: skip
            return True
        return not returns and budget.refuse(more + objects, group_id, client)
