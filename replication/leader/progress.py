"""Tracks the progress of a follower, which its leader learns from the offsets of its fetches.

Times are those of `ottla.storage.disk.clock.elapsed_ms`. A wall clock that jumps must neither remove a follower from the ISR nor keep a
dead one in it.
"""

from typing import Protocol, final

from ottla.storage.disk.clock import NEVER_MS


class IdleFetches(Protocol):
    """The fetches of one client for a partition without news for it. They stay in `Partition.idle_fetches` until `end`.

    Those of a follower are also `ReplicaProgress.idle`: each is a fetch at the log end offset, with the known log start offset.
    """

    @property
    def last_fetch_ms(self) -> int:
        """Time of the last fetch."""

    def count(self) -> None:
        """Add the fetches since the last call to the topic's counters."""

    def end(self) -> None:
        """End the idleness: the next fetch visits the partition. For a follower, passes the time of the last fetch to its progress."""


@final
class ReplicaProgress:
    """Progress of one follower of a led partition."""

    __slots__ = (
        "_last_caught_up_ms",
        "_last_fetch_ms",
        "broker_id",
        "idle",
        "last_fetch_leader_end_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.last_fetch_leader_end_offset = 0
        self.idle: IdleFetches | None = None
        self._last_caught_up_ms = NEVER_MS
        self._last_fetch_ms = NEVER_MS

    @property
    def last_caught_up_ms(self) -> int:
        """The last time at which it is known to have had all records of its leader."""
        idle = self.idle
        return self._last_caught_up_ms if idle is None else max(self._last_caught_up_ms, idle.last_fetch_ms)

    @property
    def last_fetch_ms(self) -> int:
        """Time of its last fetch; NEVER_MS before the first one."""
        idle = self.idle
        return self._last_fetch_ms if idle is None else idle.last_fetch_ms

    def end_idle(self, last_fetch_ms: int) -> None:
        """Record the time of the last idle fetch."""
        self.idle = None
        self._last_fetch_ms = last_fetch_ms
        self._last_caught_up_ms = max(self._last_caught_up_ms, last_fetch_ms)

    def on_fetch(self, fetch_offset: int, follower_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch at `fetch_offset`; the follower has all records below.

        It counts as caught up now if it has all records of the leader. It counts as caught up at its previous fetch if it now has all
        records that the leader had then. Under load even a follower that fetches steadily is never at the very end.
        """
        if self.idle is not None:
            self.idle.end()
        caught_up_ms = self._last_caught_up_ms
        last_end_offset = self.last_fetch_leader_end_offset
        if fetch_offset >= leader_end_offset:
            if now_ms > caught_up_ms:
                self._last_caught_up_ms = now_ms
        elif fetch_offset >= last_end_offset and self._last_fetch_ms > caught_up_ms:
            self._last_caught_up_ms = self._last_fetch_ms
        self.log_start_offset = follower_start_offset
        self.log_end_offset = fetch_offset
        # A request that is handled later can see a smaller end only after a truncation, and a leader's log is never truncated.
        if leader_end_offset > last_end_offset:
            self.last_fetch_leader_end_offset = leader_end_offset
        self._last_fetch_ms = now_ms

    def reset(self, leader_end_offset: int, now_ms: int, *, is_new_leader: bool, in_sync: bool) -> None:
        """Begin a leader epoch. ISR members count as caught up just now, others wait for their next fetch.

        A leader that was elected again (`is_new_leader` is false) keeps the offsets of its followers.
        """
        assert self.idle is None
        self._last_caught_up_ms = now_ms if in_sync else NEVER_MS
        if is_new_leader:
            self.log_end_offset = -1
            self.log_start_offset = -1
            self.last_fetch_leader_end_offset = -1
            self._last_fetch_ms = NEVER_MS
        else:
            self.last_fetch_leader_end_offset = leader_end_offset
            self._last_fetch_ms = now_ms if in_sync else NEVER_MS

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower belongs to the ISR (`replica.lag.time.max.ms`)."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms
