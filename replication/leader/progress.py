"""How far a follower is, as its leader sees it: the leader learns it from the offsets that the follower fetches at.

Times are those of `storage.disk.clock.elapsed_ms`: a wall clock that jumps must neither put a follower out of the ISR nor keep a dead one
in it.
"""

from typing import Protocol

from storage.disk.clock import NEVER_MS


class IdleFetches(Protocol):
    """The fetches of one client for a partition of which nothing is to be read or told. They stand in `Partition.idle_fetches` until `end`.

    Those of a follower are `ReplicaProgress.idle`, too: each is a fetch at the log end offset, with the log start offset known here.
    """

    @property
    def last_fetch_ms(self) -> int:
        """When the last one was."""

    def count(self) -> None:
        """Add those to the topic's counters that are not there yet."""

    def end(self) -> None:
        """The partition is to be looked at again. Of a follower, `ReplicaProgress.end_idle` learns what the fetches were."""


class ReplicaProgress:
    """One follower of a partition that is led here."""

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
        """When it had, at the latest, all that its leader had then."""
        idle = self.idle
        return self._last_caught_up_ms if idle is None else max(self._last_caught_up_ms, idle.last_fetch_ms)

    @property
    def last_fetch_ms(self) -> int:
        """When it fetched last; NEVER_MS before the first time."""
        idle = self.idle
        return self._last_fetch_ms if idle is None else idle.last_fetch_ms

    def end_idle(self, last_fetch_ms: int) -> None:
        """For `idle`, whose last fetch was then."""
        self.idle = None
        self._last_fetch_ms = last_fetch_ms
        self._last_caught_up_ms = max(self._last_caught_up_ms, last_fetch_ms)

    def on_fetch(self, fetch_offset: int, follower_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """The follower asks for `fetch_offset`, so it has everything below.

        It counts as caught up now when it has all the leader has, and as caught up at its previous fetch when it now has all
        that the leader had then: a follower that fetches steadily under load is never at the very end.
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
        # A request that was read later may see an older end only if the log was truncated, and a leader's never is.
        if leader_end_offset > last_end_offset:
            self.last_fetch_leader_end_offset = leader_end_offset
        self._last_fetch_ms = now_ms

    def reset(self, leader_end_offset: int, now_ms: int, *, is_new_leader: bool, in_sync: bool) -> None:
        """A leader epoch began. Members of the ISR count as caught up a moment ago, others wait for their next fetch.

        A leader that was elected again (`is_new_leader` is false) goes on knowing how far its followers are.
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
        """Whether the follower belongs into the ISR (`replica.lag.time.max.ms`)."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms
