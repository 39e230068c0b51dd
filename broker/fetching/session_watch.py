"""What changes of the partitions of a follower's fetch session: a fetch looks at those alone.

Made and used by `follower_fetch` for a session of which nothing is out of the ordinary; ended by the session when anything else is done to
it, and when it was left: its connection closes, or has another session watched. Each partition stands in the list of those that wait for
it, from the first of these fetches until the end, so that a fetch adds and drops nothing there.

A partition is settled when its follower is in sync, has all there is, and was told all of it: everything is committed. Nothing has to be
read of it, told or learned, except that the follower was here: `last_fetch_ms` is that of all settled partitions. What could change that
comes as a notification (records, leadership, the log) or as `end` (offsets told elsewhere, the ISR, the log start offset), in the very call
in which it happens. Then it is unsettled until a fetch finds that it is settled again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.fetching.fetch_sessions import FetchSession, SessionPartition
    from broker.loop.purgatory import DelayedOperation
    from broker.security.client import Client
    from replication.leader.partition import Partition
    from replication.leader.progress import ReplicaProgress

LET_GO_PER_TURN: Final = 250
"""How many partitions of a watch that has ended are let go in a turn of the event loop: 2 µs each."""


class WatchedPartition:
    """One partition of such a session. It waits for the partition in place of the session's fetches."""

    __slots__ = ("_counted", "asked", "completed", "partition", "progress", "turn", "watch")

    def __init__(self, watch: SessionWatch, partition: Partition, asked: SessionPartition, turn: int) -> None:
        self.watch = watch
        self.partition = partition
        self.asked = asked
        self.turn = turn
        """Its place in the order of service."""
        self.completed = False
        """Whether the watch has ended."""
        self.progress: ReplicaProgress | None = None
        """The follower's, while the partition is settled."""
        self._counted = 0

    @property
    def last_fetch_ms(self) -> int:
        """See IdleFetches."""
        return self.watch.last_fetch_ms

    def try_complete(self) -> bool:
        """The partition has moved: the fetch that waits learns that something has."""
        if self.progress is not None:
            self.end()
        waiting = self.watch.waiting
        if waiting is not None:
            waiting.try_complete()
        return False

    def maybe_settle(self) -> bool:
        """Settle if nothing is to be told, and nothing to be learned but that the follower was here.

        To be asked after a fetch at the log end offset, of a follower that knows it for the high watermark.
        """
        asked = self.asked
        partition = self.partition
        log = partition.log
        replica_id = self.watch.replica_id
        if (
            log.high_watermark != log.log_end_offset  # a log that was just replaced may know less than was told
            or asked.log_start_offset != log.log_start_offset
            or replica_id not in partition.isr
        ):
            return False
        progress = partition.followers[replica_id]
        progress.idle = self
        self.progress = progress
        self._counted = self.watch.fetches
        return True

    def end(self) -> None:
        """It is settled no more: the next fetch looks at it."""
        progress = self.progress
        if progress is not None:
            self.count()
            self.progress = None
            progress.end_idle(self.watch.last_fetch_ms)
            self.watch.unsettled.append(self)

    def count(self) -> None:
        """See IdleFetches."""
        fetches = self.watch.fetches
        self.partition.stats.fetch_requests += fetches - self._counted
        self._counted = fetches


class SessionWatch:
    """See the module."""

    __slots__ = ("_all", "_last_turn", "fetch", "fetches", "has_ended", "last_fetch_ms", "replica_id", "session", "unsettled", "waiting")

    def __init__(self, session: FetchSession, replica_id: int, client: Client) -> None:
        """It watches what is added; `client` is the follower."""
        self.session = session
        self.replica_id = replica_id
        self.fetch: DelayedOperation | None = None
        """The one that is not answered yet."""
        self.waiting: DelayedOperation | None = None
        """The same while it is to learn that something has moved."""
        self.fetches = 0
        self.last_fetch_ms = 0
        self.has_ended = False
        self._all: list[WatchedPartition] = []
        self._last_turn = 0
        self.unsettled: list[WatchedPartition] = []
        """Those that a fetch has to look at, each once."""
        session.watch = self
        if client.on_lost is not None:
            client.on_lost()
        client.on_lost = self.end

    def add(self, partition: Partition, asked: SessionPartition) -> WatchedPartition:
        """Watch the next partition of the session, in its order. It is for the caller to settle it, or to put it with the `unsettled`."""
        watched = asked.watched = WatchedPartition(self, partition, asked, self._last_turn)
        self._last_turn += 1
        self._all.append(watched)
        partition.waiters.add(watched)
        return watched

    def settle(self) -> int:
        """Settle what can be, after a fetch; how many records there are to read."""
        unsettled = self.unsettled
        unread = 0
        settled = False
        for watched in unsettled:
            asked = watched.asked
            offset = asked.offset
            behind = watched.partition.log.log_end_offset - offset
            if behind:
                unread += behind
            # A follower of a busy partition has more than it knows to be committed.
            elif asked.high_watermark == offset and watched.maybe_settle():
                settled = True
        if settled:
            self.unsettled = [watched for watched in unsettled if watched.progress is None]
        return unread

    def in_order(self) -> list[WatchedPartition]:
        """Those that may have news, in the order of service."""
        unsettled = self.unsettled
        if len(unsettled) > 1:
            unsettled.sort(key=_turn)
        return unsettled

    def serve_last(self, watched: WatchedPartition) -> None:
        """As FetchSession.serve_last."""
        asked = watched.asked
        self.session.serve_last((asked.topic_id, asked.partition))
        watched.turn = self._last_turn
        self._last_turn += 1

    def end(self) -> None:
        """Nothing is watched any more. A fetch that waits is answered, with nothing: what there is to tell the next one is told.

        Many partitions are let go some in each turn of the loop: what a settled one knows stays true until then, or until it is asked.
        """
        if self.has_ended:
            return
        self.has_ended = True
        self.session.watch = None
        self.unsettled = []
        self._let_some_go()
        fetch, self.fetch, self.waiting = self.fetch, None, None
        if fetch is not None:
            fetch.force_complete()

    def _let_some_go(self) -> None:
        left = self._all
        for watched in left[-LET_GO_PER_TURN:]:
            watched.end()
            watched.completed = True
            if watched.asked.watched is watched:  # else another watch has begun
                watched.asked.watched = None
            watched.partition.waiters.drop(watched)
        del left[-LET_GO_PER_TURN:]
        if left:
            asyncio.get_running_loop().call_soon(self._let_some_go)


def _turn(watched: WatchedPartition) -> int:
    return watched.turn
