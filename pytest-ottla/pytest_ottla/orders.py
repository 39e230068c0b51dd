"""Orders faults of a broker, and what it would do some day at once, by commands of `ottla serve --ephemeral`."""

from __future__ import annotations

from pytest_ottla.helpers import Helpers

__tracebackhide__ = True  # a failure shows the line of the test


class Orders(Helpers):
    """The orders that a broker takes beside those of `Helpers`. They raise OttlaError."""

    # ---- time at will

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let this time pass at once: sessions, transactions, retention, quotas and tokens end as if it had passed."""
        self.ask("advance", ms=(seconds + minutes * 60 + hours * 3600 + days * 86_400) * 1000)

    def roll(self, topic: str) -> None:
        """Begin a new segment in each partition of a topic."""
        self.ask("roll", topic=topic)

    def compact(self, topic: str) -> None:
        """Roll and compact the logs of a topic; they are clean on return."""
        self.ask("compact", topic=topic)

    def expire(self, group: str, member: str) -> None:
        """End the session of a member of a group now; `member` is its id."""
        self.ask("expire", group=group, member=member)

    def end_locks(self, group: str) -> None:
        """End the locks of a share group now: the records that its members have acquired are delivered again."""
        self.ask("end_locks", group=group)

    # ---- faults

    def fail_next(self, api: str, error: str | None, times: int = 1) -> None:
        """Answer the next requests of an API with an error: `fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER")`.

        The names are Kafka's. With None the connection is closed instead.
        """
        self.ask("fail", api=api, error=error, times=times)

    def delay(self, ms: float) -> None:
        """Let every request wait before it is handled; 0 ends that."""
        self.ask("delay", ms=ms)

    def full_disk(self) -> None:
        """Let every write fail as on a full disk. The broker ends once it has no usable log directory, as Kafka does: `restart` it."""
        self.ask("disk", full=True)

    def slow_disk(self, ms: float) -> None:
        """Let every write and flush take longer; 0 ends that."""
        self.ask("disk", slow_ms=ms)

    def shift_clock(self, seconds: float) -> None:
        """Let the time of day be ahead for the broker, or behind if negative; 0 ends that. Timeouts run as before."""
        self.ask("clock", shift_ms=round(seconds * 1000))
