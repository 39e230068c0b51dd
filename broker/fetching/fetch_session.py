"""Tracks which partitions of a session changed, so that a fetch visits only those (KIP-227).

The Fetch handler makes a session for every full request; `FetchSessionCache` keeps the sessions that clients continue. A session remembers
the partitions that its client fetches, and the offsets last sent for each. A fetch visits the partitions that its request names and those
that are not idle. So its cost grows with the number of changes, not with the size of the session.

A partition is idle when its client has all records and knows all offsets: there is nothing to read or send. A follower's fetch of an idle
partition only shows that the follower is alive: `last_fetch_ms` holds for all idle partitions. An idle partition is in the `idle_fetches`
of the partition on this broker, and in its `Waiters` for the offset up to which the client reads. Any event that could change the result
of a fetch ends the idleness at once: an append, a move of the high watermark, a change of leadership, a log that was truncated, moved,
replaced or deleted. From then on fetches visit the partition until one finds it idle again.

Invariant: `changed` contains each partition that is not idle exactly once. Between two fetches it may also contain idle ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol, final

from ottla.pauses import begin, pause
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.leader.partition import Partition
from ottla.replication.leader.progress import ReplicaProgress
from ottla.replication.ports.replica_selector import NO_PREFERENCE
from ottla.replication.ports.waiters import Waiters
from ottla.replication.reading.asked_partition import NO_EPOCH, AskedPartition
from ottla.replication.reading.fetch_read import FetchParams

if TYPE_CHECKING:
    from ottla.broker.security.client import Client

INITIAL_EPOCH: Final = 0
"""The epoch of a request that asks for a new session."""
FINAL_EPOCH: Final = -1
"""The epoch of a request without a session; ends the session whose id it contains."""
NO_SESSION: Final = 0
LAST_EPOCH: Final = 2**31 - 1
FORGOTTEN: Final = -1
"""Place in the order of service of a partition that a session has dropped."""


class UnansweredFetch(Protocol):
    """The fetch of a session that is not answered yet."""

    def on_moved(self, asked: SessionPartition, partition: Partition) -> None:
        """Called when one of its partitions changed."""

    def give_up(self) -> None:
        """Answer now, without partitions that are not written yet: the session has ended, or another fetch continues it."""


@final
class SessionPartition(AskedPartition):
    """One partition of a session, and the offsets last sent to its client. Learns of changes as a Waiter and through IdleFetches."""

    __slots__ = (
        "_counted",
        "error_code",
        "is_idle",
        "is_listed",
        "is_unknown",
        "name",
        "partition",
        "progress",
        "session",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "turn",
        "waits_in",
    )

    def __init__(self, session: FetchSession, topic: bytes, name: str | None, topic_id: bytes, index: int) -> None:
        """`topic` is the key of the topic in requests: its name in UTF-8, or its id. `name` is None while an id is unknown."""
        self.identify(topic_id, index)
        self.session = session
        self.topic = topic
        self.name = name
        self.turn = FORGOTTEN
        """Its place in the order of service; FORGOTTEN when it is no longer part of the session."""
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.error_code = 0
        """The error of the last reading."""
        self.is_unknown = False
        """Whether the cluster does not know the partition, or the client may not know it."""
        self.partition: Partition | None = None
        """The partition on this broker that the last reading found; None when it is not needed any more."""
        self.waits_in: Waiters | None = None
        """The list of `partition` in which it waits for a change."""
        self.is_idle = False
        self.is_listed = False
        """Whether it is in the `changed` list of the session."""
        self.progress: ReplicaProgress | None = None
        """The progress of the follower, while the partition is idle."""
        self._counted = 0

    def update_request(self, offset: int, max_bytes: int, leader_epoch: int, last_fetched_epoch: int, start: int) -> None:
        """Set what the client wants from now on, as given in a request that names the partition.

        A client with another leader epoch has restarted, and may have dropped the answer that contained the high watermark. So the next
        answer contains it again. Apache Kafka would leave a follower with the old high watermark until the next record.
        """
        before = self.leader_epoch
        self.ask(offset, max_bytes, leader_epoch, last_fetched_epoch, start)
        if self.leader_epoch != before:
            self.told_high_watermark = -1
        self.end()

    # -- what changes ----------------------------------------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Whether it has stopped waiting. See Waiter."""
        return self.waits_in is None or self.session.has_ended

    def try_complete(self) -> bool:
        """Handle a change of the partition; True when this no longer waits for it. See Waiter."""
        partition = self.partition
        if partition is None or self.completed:
            return True
        fetch = self.session.fetch
        if fetch is not None:
            fetch.on_moved(self, partition)
        if not partition.is_online and self.partition is partition:
            self.waits_in = None
            self.partition = None
        return self.waits_in is None

    def wait_in(self, waiters: Waiters) -> None:
        """Have `try_complete` called when these are notified, and no longer when others are."""
        before = self.waits_in
        if before is not waiters:
            if before is not None:
                before.drop(self)
            self.waits_in = waiters
            waiters.add(self)

    def set_partition(self, partition: Partition | None) -> None:
        """Set the partition that a reading found, or None."""
        before = self.partition
        if before is not partition:
            self.release()
            self.partition = partition

    def release(self) -> None:
        """Stop waiting for changes, and release the partition."""
        self.end()
        partition = self.partition
        if partition is not None:
            self.partition = None
            waiters = self.waits_in
            if waiters is not None:
                self.waits_in = None
                waiters.drop(self)

    # -- idleness --------------------------------------------------------------------------------------------------------

    def maybe_rest(self, params: FetchParams) -> bool:
        """Become idle if the first reading of a fetch found no records and no changed offsets; returns whether it did."""
        partition = self.partition
        if (
            partition is None
            or not self.session.is_watched
            or self.region is not None
            or self.offset != self.end_offset
            or self.told_high_watermark != self.high_watermark
            or self.told_log_start_offset != self.log_start_offset
            or self.preferred_read_replica != NO_PREFERENCE
            or self.diverging_epoch != NO_EPOCH
            or self.topic_id not in (ZERO_UUID, partition.log.topic_id)
            or (params.rack_id is not None and partition.is_leader)  # its preferred replica may change without an event
        ):
            return False
        if params.replica_id >= 0:
            log = partition.log
            # A log that was just replaced may have lower offsets than were sent.
            if log.high_watermark != log.log_end_offset or params.replica_id not in partition.isr:
                return False
            progress = partition.followers[params.replica_id]
            progress.idle = self
            self.progress = progress
        self._counted = self.session.fetches
        self.is_idle = True
        self.session.has_stale = True
        partition.idle_fetches[self] = None
        self.wait_in(params.waiters(partition))
        return True

    @property
    def last_fetch_ms(self) -> int:
        """See IdleFetches."""
        return self.session.last_fetch_ms

    def count(self) -> None:
        """See IdleFetches."""
        fetches = self.session.fetches
        if self.partition is not None:
            self.partition.stats.fetch_requests += fetches - self._counted
        self._counted = fetches

    def end(self) -> None:
        """End the idleness: the next fetch visits it. See IdleFetches."""
        if not self.is_idle:
            return
        self.count()
        self.is_idle = False
        assert self.partition is not None  # an idle one waits there
        del self.partition.idle_fetches[self]
        progress = self.progress
        if progress is not None:
            self.progress = None
            progress.end_idle(self.session.last_fetch_ms)
        self.session.list_changed(self)

    def forget_found(self) -> None:
        """Drop the result of the last reading, which has been sent, or will not be sent."""
        self.region = None
        if self.waits_in is None:
            self.partition = None

    # -- news ------------------------------------------------------------------------------------------------------------

    def has_news(self) -> bool:
        """Whether an incremental answer must contain the result of the last reading. Records the offsets in it as sent.

        The last stable offset is not compared: it moves only together with the high watermark or the log start offset.
        """
        if self.error_code:
            # So that the first answer after the error contains the partition in any case.
            self.told_high_watermark = -1
            return True
        news = (
            self.region is not None
            or self.told_high_watermark != self.high_watermark
            or self.told_log_start_offset != self.log_start_offset
            or self.preferred_read_replica != NO_PREFERENCE
            or self.diverging_epoch != NO_EPOCH
        )
        self.told_high_watermark = self.high_watermark
        self.told_log_start_offset = self.log_start_offset
        return news


@final
class FetchSession:
    """The partitions of one full request, and of the incremental requests that follow while the session is kept."""

    __slots__ = (
        "_client",
        "_is_ordered",
        "_is_releasing",
        "_last_turn",
        "_partitions",
        "_reader",
        "changed",
        "created_ms",
        "epoch",
        "fetch",
        "fetches",
        "has_ended",
        "has_stale",
        "is_follower",
        "is_watched",
        "last_fetch_ms",
        "last_used_ms",
        "session_id",
        "size",
        "uses_topic_ids",
    )

    def __init__(self, uses_topic_ids: bool) -> None:
        self.session_id = NO_SESSION
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.is_follower = False
        self.created_ms = 0
        self.last_used_ms = 0
        self.last_fetch_ms = 0
        """Time by `elapsed_ms` of the last fetch that counts for idle partitions, too."""
        self.fetches = 0
        self.size = 0
        self.changed: list[SessionPartition] = []
        self.fetch: UnansweredFetch | None = None
        self.has_ended = False
        self.has_stale = False
        """Whether `changed` contains idle or forgotten partitions."""
        self.is_watched = False
        """Whether its partitions may be idle: its client is connected, and a lost connection would be noticed."""
        self._partitions: dict[bytes, dict[int, SessionPartition]] = {}
        self._last_turn = 0
        self._is_ordered = True  # whether `changed` is in the order of service
        self._client: Client | None = None
        self._reader: tuple[int, int, int, bool, int] | None = None
        self._is_releasing = False

    def __iter__(self) -> Iterator[SessionPartition]:
        for of_topic in self._partitions.values():
            yield from of_topic.values()

    # -- partitions ------------------------------------------------------------------------------------------------------

    def find(self, topic: bytes, index: int) -> SessionPartition | None:
        """The partition, by the key of its topic in requests."""
        of_topic = self._partitions.get(topic)
        return of_topic.get(index) if of_topic is not None else None

    def add(self, topic: bytes, name: str | None, index: int) -> SessionPartition:
        """Add a new partition at the end of the order. `name` is the name of the topic, None while it is unknown."""
        asked = SessionPartition(self, topic, name, topic if self.uses_topic_ids else ZERO_UUID, index)
        of_topic = self._partitions.get(topic)
        if of_topic is None:
            of_topic = self._partitions[topic] = {}
        of_topic[index] = asked
        self.size += 1
        self._last_turn += 1
        asked.turn = self._last_turn
        self.list_changed(asked)
        return asked

    def forget(self, topic: bytes, index: int) -> None:
        """Drop a partition, if the session has it."""
        of_topic = self._partitions.get(topic)
        asked = of_topic.pop(index, None) if of_topic is not None else None
        if of_topic is None or asked is None:
            return
        if not of_topic:
            del self._partitions[topic]
        self.size -= 1
        asked.release()
        asked.turn = FORGOTTEN
        self.has_stale = True

    def list_changed(self, asked: SessionPartition) -> None:
        """Let the next fetches visit a partition."""
        if not asked.is_listed:
            asked.is_listed = True
            changed = self.changed
            if changed and changed[len(changed) - 1].turn > asked.turn:
                self._is_ordered = False
            changed.append(asked)

    def in_order(self) -> list[SessionPartition]:
        """The partitions that are not idle, in the order of service."""
        if self.has_stale:
            self.has_stale = False
            stale, self.changed = self.changed, []
            for asked in stale:
                if asked.is_idle or asked.turn == FORGOTTEN:
                    asked.is_listed = False
                else:
                    self.changed.append(asked)
        if not self._is_ordered:
            self.changed.sort(key=_turn)
            self._is_ordered = True
        return self.changed.copy()

    def serve_last(self, asked: SessionPartition) -> None:
        """Move a partition that returned data behind those that did not, so that none starves."""
        self._last_turn += 1
        asked.turn = self._last_turn
        self._is_ordered = False

    def look_at_all(self) -> None:
        """End the idleness of all partitions, so that the next fetch visits all."""
        for of_topic in self._partitions.values():
            for asked in of_topic.values():
                asked.end()

    # -- fetches ---------------------------------------------------------------------------------------------------------

    def begin_fetch(self, fetch: UnansweredFetch) -> None:
        """Begin a fetch. An earlier unanswered one is answered empty, since the new fetch gets all news."""
        if self.fetch is not None:
            self.fetch.give_up()
        self.fetch = fetch

    def on_fetch(self, now_ms: int) -> None:
        """Count a fetch whose request has been read, for all partitions that are idle now."""
        self.fetches += 1
        self.last_fetch_ms = now_ms

    def end_fetch(self, fetch: UnansweredFetch) -> None:
        """End a fetch that is answered, or whose client has left."""
        if self.fetch is fetch:
            self.fetch = None

    def belong_to(self, client: Client, reader: tuple[int, int, int, bool, int]) -> None:
        """Set the client of the session. For another reader, all partitions are visited again. No partition becomes idle for a lost client.

        `reader` is everything, beside the partitions, on which the result of a fetch depends. Only one session of a connection has idle
        partitions: the client has left the session before.
        """
        self._is_releasing = False
        if self._reader != reader or self._client is not client:
            self.look_at_all()
            self._reader = reader
        self.is_watched = not client.is_lost
        if client.on_lost != self.leave:
            if client.on_lost is not None:
                client.on_lost()
            client.on_lost = self.leave
        self._client = client

    def leave(self) -> None:
        """Handle the loss of the client, which may come back by another connection. A waiting fetch is answered empty.

        Partitions are released in turns of the loop. An idle partition stays valid until then, or until the next fetch.
        """
        self._client = None
        self.is_watched = False
        self._is_releasing = True
        begin(self._release(list(self)))
        if self.fetch is not None:
            self.fetch.give_up()

    def end(self) -> None:
        """End the session."""
        if not self.has_ended:
            client = self._client
            if client is not None and client.on_lost == self.leave:
                client.on_lost = None
            self.leave()
            self.has_ended = True

    async def _release(self, left: list[SessionPartition]) -> None:
        while left and self._is_releasing:
            left.pop().release()
            await pause()


def _turn(asked: SessionPartition) -> int:
    return asked.turn


def next_epoch(epoch: int) -> int:
    """The epoch of the next request; wraps to 1, since 0 begins a session."""
    if epoch == FINAL_EPOCH:
        return FINAL_EPOCH
    return 1 if epoch == LAST_EPOCH else epoch + 1
