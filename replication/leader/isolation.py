"""What a leader that is cut off does: it knows better than to let producers wait for followers that nobody can let go.

A broker that reaches neither ZooKeeper nor the followers of a partition cannot know whether it still leads. Either ZooKeeper lives: then
its session has ended there, and another broker leads. Or ZooKeeper is away: then nobody can take the silent follower out of the ISR. A
Produce with acks=all comes to nothing in both cases, so it is refused at once with NOT_LEADER_OR_FOLLOWER, which makes clients look for the
leader elsewhere, instead of after their own timeout. Everything else goes on: where followers fetch, a cluster without ZooKeeper works.

A broker of which that is true for everything it leads is alone. Clients that know no other broker would ask it again and again who leads,
so it closes their connections, once in every session timeout: while they cannot reach it they ask others. Those who find nobody else are
served as before.

`broker.cluster.cluster_wiring` has `look` called twice a second. Time is counted from when the loss was noticed, so that a process that
stood still hears what there is to hear before it judges.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from replication.leader.partition import Partition
from storage.disk.clock import Clock, elapsed_ms

logger = logging.getLogger(__name__)

UNNOTICED = 2 / 3
"""Of the session timeout: a client of ZooKeeper finds out after that time that nobody answers any more."""


class Isolation:
    """The partitions of one broker."""

    __slots__ = ("_clock", "_disconnected_since", "_is_connected", "_partitions", "_send_away", "_sent_away_at", "_timeout_ms", "cut_off")

    def __init__(
        self,
        partitions: Iterable[Partition],
        is_connected: Callable[[], bool],
        timeout_ms: int,
        clock: Clock,
        send_away: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_connected` to ZooKeeper; `timeout_ms` is that of the session; `send_away` closes the connections of clients."""
        self._partitions = partitions
        self._is_connected = is_connected
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._send_away = send_away
        self._disconnected_since: float | None = None
        self._sent_away_at: float | None = None
        self.cut_off = 0
        """How many partitions are."""

    def look(self) -> None:
        """Mark what is cut off now, and nothing else."""
        if self._is_connected():
            self._disconnected_since = self._sent_away_at = None
            if self.cut_off:
                self._mark(lambda partition: False)
            return
        now = self._clock.monotonic()
        if self._disconnected_since is None:
            self._disconnected_since = now
        if (now - self._disconnected_since) * 1000 >= self._timeout_ms * (1 - UNNOTICED):
            self._mark(self._waits_in_vain)
            is_alone = self.cut_off and not any(map(_is_replicated, self._partitions))
            if is_alone and (self._sent_away_at is None or (now - self._sent_away_at) * 1000 >= self._timeout_ms):
                self._sent_away_at = now
                self._send_away()

    def _waits_in_vain(self, partition: Partition) -> bool:
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
                "neither ZooKeeper nor followers in sync of %d partitions led here were heard of for %d ms: another broker may lead them; "
                "producers with acks=all are sent to look for it until one of the two is back",
                self.cut_off, self._timeout_ms,
            )  # fmt: skip
        elif before and not self.cut_off:
            logger.info("no partition led here is cut off from its followers any more")


def _is_replicated(partition: Partition) -> bool:
    """Whether somebody follows who is in sync, and is heard of."""
    return partition.is_leader and len(partition.maximal_isr) > 1 and not partition.is_cut_off
