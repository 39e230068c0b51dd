"""Holds the configuration of consumer groups, of the broker and of single groups, and the state of the cluster that decisions depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.groups.consumer.topics import Topics


class GroupTimes(NamedTuple):
    """The times of a group, which its own configuration may change."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class ConsumerSettings(NamedTuple):
    """The values of `group.consumer.*` in the broker's configuration."""

    times_of: Callable[[str], GroupTimes] = lambda group_id: GroupTimes()
    """The times of a group."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """Names of assignors, the default first."""
    max_size: int = 2**31 - 1
    classic_max_size: int = 2**31 - 1
    regex_refresh_interval_ms: int = 600_000
    may_upgrade: bool = True
    """Whether a classic group with members may become a group of the new protocol."""
    may_downgrade: bool = True
    """Whether a group may become a classic one when its last member of the new protocol leaves."""

    @property
    def is_migration_disabled(self) -> bool:
        """Whether no group may have members of both protocols."""
        return not (self.may_upgrade or self.may_downgrade)


class Context(NamedTuple):
    """The facts that a decision depends on, besides the group and the event."""

    now_ms: int
    topics: Topics
    settings: ConsumerSettings
    times: GroupTimes
