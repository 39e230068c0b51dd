"""Holds the configuration of consumer groups, of the broker and of single groups, and the state of the cluster that decisions depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.coordination.groups.consumer.topics import Topics


class GroupTimes(NamedTuple):
    """The times of a group, which its own configuration may change."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    is_interval_default: bool = False
    """Whether `heartbeat_interval_ms` is configured nowhere, so that it may be shortened while there are few members."""


class ConsumerSettings(NamedTuple):
    """The values of `group.consumer.*` in the broker's configuration, or those of `group.share.*` for share groups."""

    times_of: Callable[[str], GroupTimes] = lambda group_id: GroupTimes()
    """The times of a group."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """Names of assignors, the default first."""
    max_size: int = 2**31 - 1
    classic_max_size: int = 2**31 - 1
    regex_refresh_interval_ms: int = 600_000
    heartbeats_per_second: int = 0
    """How many heartbeats the members of all groups may send because intervals are shortened; 0 shortens none."""
    initialize_retry_ms: int = 30_000
    """Share groups: an initialization of partitions without an answer is asked for again after this time."""
    may_upgrade: bool = True
    """Whether a classic group with members may become a group of the new protocol."""
    may_downgrade: bool = True
    """Whether a group may become a classic one when its last member of the new protocol leaves."""

    @property
    def is_migration_disabled(self) -> bool:
        """Whether no group may have members of both protocols."""
        return not (self.may_upgrade or self.may_downgrade)


WAITING_INTERVAL_MS: Final = 500
"""Most time between two heartbeats of a member that waits: for a target, for partitions that others have to give up, or for the topics of
its regular expression. An interval that is shortened is not shorter."""


class Context(NamedTuple):
    """The facts that a decision depends on, besides the group and the event."""

    now_ms: int
    topics: Topics
    settings: ConsumerSettings
    times: GroupTimes
    heartbeat_interval_ms: int
    """The time to the next heartbeat of a member that waits for nothing."""

    def is_recent(self, then_ms: int, interval_ms: int) -> bool:
        """Whether less than an interval has passed since then. A time to come was long ago: the clock was set back since."""
        return 0 <= self.now_ms - then_ms < interval_ms
