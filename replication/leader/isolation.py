"""Refuses acks=all on a leader that is cut off, instead of letting producers wait for followers that cannot be removed from the ISR.

A broker that reaches neither ZooKeeper nor the followers of a partition cannot know whether it still leads the partition. If ZooKeeper
lives, the broker's session has ended there and another broker leads. If ZooKeeper is down, no controller can remove the silent follower
from the ISR. In both cases a Produce with acks=all cannot succeed. So it is refused at once with NOT_LEADER_OR_FOLLOWER, after which
clients look for the leader elsewhere, instead of after their own timeout. All other requests are served: as long as followers fetch, a
cluster works without ZooKeeper.

If all partitions that a broker leads are cut off, the broker is alone. Clients that know no other broker would ask it again and again for
the leader. So the broker closes their connections, once per session timeout: clients that cannot reach it ask other brokers. Clients
that reach no other broker are served as before.

`ottla.broker.cluster.cluster_wiring` calls `look` twice a second. Time is counted from the detection of the loss, so a process that was
suspended first processes the messages that have arrived.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.replication.leader.partition import Partition
from ottla.storage.disk.clock import Clock, elapsed_ms

logger = logging.getLogger(__name__)

UNNOTICED = 2 / 3
"""Fraction of the session timeout after which a ZooKeeper client notices that ZooKeeper does not answer."""


class Isolation:
    """Marks the partitions of one broker that are cut off."""

    __slots__ = ("_clock", "_disconnected_since", "_is_connected", "_partitions", "_send_away", "_sent_away_at", "_timeout_ms", "cut_off")

    def __init__(
        self,
        partitions: Iterable[Partition],
        is_connected: Callable[[], bool],
        timeout_ms: int,
        clock: Clock,
        send_away: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_connected`: whether the broker reaches ZooKeeper. `timeout_ms` is the session timeout, `send_away` closes the connections of
        clients."""
        self._partitions = partitions
        self._is_connected = is_connected
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._send_away = send_away
        self._disconnected_since: float | None = None
        self._sent_away_at: float | None = None
        self.cut_off = 0
        """Number of partitions that are cut off."""

    def look(self) -> None:
        """Mark the partitions that are cut off now, and unmark the others."""
        if self._is_connected():
            self._disconnected_since = self._sent_away_at = None
            if self.cut_off:
                self._mark(lambda partition: False)
            return
        now = self._clock.monotonic()
        if self._disconnected_since is None:
            self._disconnected_since = now
        if (now - self._disconnected_since) * 1000 >= self._timeout_ms * (1 - UNNOTICED):
            self._mark(self._lacks_followers)
            is_alone = self.cut_off and not any(map(_is_replicated, self._partitions))
            if is_alone and (self._sent_away_at is None or (now - self._sent_away_at) * 1000 >= self._timeout_ms):
                self._sent_away_at = now
                self._send_away()

    def _lacks_followers(self, partition: Partition) -> bool:
        silent_since_ms = elapsed_ms(self._clock) - self._timeout_ms
        followers = partition.followers
        return partition.is_leader and any(
            broker_id in followers and followers[broker_id].last_fetch_ms < silent_since_ms for broker_id in partition.maximal_isr
        )

    def _mark(self, is_cut_off: Callable[[Partition], bool]) -> None:
        before, self.cut_off = self.cut_off, 0
        for partition in self._partitions:
            partition.set_cut_off(is_cut_off(partition))
            self.cut_off += partition.is_cut_off
        if self.cut_off and not before:
            logger.warning(
                "neither ZooKeeper nor followers in sync of %d partitions led here answered for %d ms: another broker may lead them; "
                "producers with acks=all are refused, so that they look for it, until one of the two answers again",
                self.cut_off, self._timeout_ms,
            )  # fmt: skip
        elif before and not self.cut_off:
            logger.info("no partition led here is cut off from its followers any longer")


def _is_replicated(partition: Partition) -> bool:
    """Whether a follower in sync fetches from this leader."""
    return partition.is_leader and len(partition.maximal_isr) > 1 and not partition.is_cut_off
