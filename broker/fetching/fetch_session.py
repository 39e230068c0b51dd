"""Remembers the partitions that a client fetches, what it was last told about each, and which of them have changed since (KIP-227).

The Fetch handler makes a session for every full request; `FetchSessionCache` keeps the sessions that clients go on with. A fetch looks at
the partitions that its request names and at those that are not idle, so it costs what has changed, not what the session holds.

A partition is idle when its client has all there is and was told all of it: nothing has to be read or said. Of an idle partition of a
follower the leader learns nothing either, except that the follower was here: `last_fetch_ms` is that of all idle partitions. An idle
partition stands in the `Waiters` of the partition on this broker, and among its `idle_fetches`. Whatever could change what a fetch finds
there ends its idleness, in the very call in which it happens: an append, a move of the high watermark, a change of leadership, a log that
was cut, moved, replaced or deleted. From then on fetches look at it until one finds that it is idle again.

Invariant: the partitions that are not idle stand in `changed`, each once. Between two looks idle ones may be left there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from broker.fetching.session_numbers import FINAL_EPOCH, FORGOTTEN, INITIAL_EPOCH, LAST_EPOCH, LET_GO_PER_TURN, NO_SESSION
from protocol.uuid import ZERO_UUID
from replication.leader.partition import Partition
from replication.leader.progress import ReplicaProgress
from replication.reading.asked_partition import AskedPartition
from replication.reading.fetch_read import FetchParams
from replication.reading.readers import NO_EPOCH, NO_PREFERENCE

if TYPE_CHECKING:
    from broker.security.client import Client


class FetchUnderWay(Protocol):
    """The fetch of a session that is not answered yet."""

    def on_moved(self, asked: SessionPartition, partition: Partition) -> None:
        """Something has happened to one of its partitions."""

    def give_up(self) -> None:
        """The session has ended, or another fetch goes on with it: answer now, with nothing that was not written yet."""


class SessionPartition(AskedPartition):
    """One partition of a session, and what its client was last told about it. See Waiter and IdleFetches for how it is told of changes."""

    __slots__ = (
        "_counted",
        "error_code",
        "is_idle",
        "is_listed",
        "is_unknown",
        "is_waiting",
        "name",
        "partition",
        "progress",
        "session",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "turn",
    )

    def __init__(self, session: FetchSession, topic: bytes, name: str | None, topic_id: bytes, index: int) -> None:
        """`topic` is what requests call it by: its name in UTF-8, or its id. `name` is None for an id that is not known yet."""
        self.identify(topic_id, index)
        self.session = session
        self.topic = topic
        self.name = name
        self.turn = FORGOTTEN
        """Its place in the order of service; FORGOTTEN when it is none of the session's any more."""
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.error_code = 0
        """Why the last reading found nothing."""
        self.is_unknown = False
        """Whether that is because the cluster does not know the partition, or does not tell the client."""
        self.partition: Partition | None = None
        """Where the last reading found it, as long as that matters."""
        self.is_waiting = False
        """Whether it stands in the `waiters` of `partition`."""
        self.is_idle = False
        self.is_listed = False
        """Whether it stands in `changed` of the session."""
        self.progress: ReplicaProgress | None = None
        """That of the follower, while the partition is idle."""
        self._counted = 0

    def ask_again(self, offset: int, max_bytes: int, leader_epoch: int, last_fetched_epoch: int, start: int) -> None:
        """Take what the client asks for from now on, in a request that names the partition.

        A client that asks in another leader epoch began anew, and may have thrown away the answer that told the high watermark. So it is
        told again; Apache Kafka would leave a follower with its old one until the next record.
        """
        before = self.leader_epoch
        self.ask(offset, max_bytes, leader_epoch, last_fetched_epoch, start)
        if self.leader_epoch != before:
            self.told_high_watermark = -1
        self.end()

    # -- what changes ----------------------------------------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Whether it waits no more. See Waiter."""
        return not self.is_waiting or self.session.has_ended

    def try_complete(self) -> bool:
        """Something has happened to the partition; True when it waits there no more. See Waiter."""
        self.end()
        partition = self.partition
        if partition is None or self.completed:
            return True
        fetch = self.session.fetch
        if fetch is not None:
            fetch.on_moved(self, partition)
        if not partition.is_online and self.partition is partition:
            self.is_waiting = False
            self.partition = None
        return not self.is_waiting

    def wait(self) -> None:
        """Be told from now on when something happens to the partition."""
        if not self.is_waiting and self.partition is not None:
            self.is_waiting = True
            self.partition.waiters.add(self)

    def stand_at(self, partition: Partition | None) -> None:
        """The partition was found there, or nowhere."""
        before = self.partition
        if before is not partition:
            self.let_go()
            self.partition = partition

    def let_go(self) -> None:
        """Be told of nothing any more."""
        self.end()
        partition = self.partition
        if partition is not None:
            self.partition = None
            if self.is_waiting:
                self.is_waiting = False
                partition.waiters.drop(self)

    # -- idleness --------------------------------------------------------------------------------------------------------

    def maybe_rest(self, params: FetchParams) -> bool:
        """Become idle if the first reading of a fetch found nothing, and nothing is to be told; whether it did."""
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
            or (params.rack_id is not None and partition.is_leader)  # its replicas move without a word
        ):
            return False
        if params.replica_id >= 0:
            log = partition.log
            # A log that was just replaced may know less than was told.
            if log.high_watermark != log.log_end_offset or params.replica_id not in partition.isr:
                return False
            progress = partition.followers[params.replica_id]
            progress.idle = self
            self.progress = progress
        self._counted = self.session.fetches
        self.is_idle = True
        self.session.has_stale = True
        partition.idle_fetches[self] = None
        self.wait()
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
        """The next fetch looks at it. See IdleFetches."""
        if not self.is_idle:
            return
        self.count()
        self.is_idle = False
        assert self.partition is not None  # it waits there
        del self.partition.idle_fetches[self]
        progress = self.progress
        if progress is not None:
            self.progress = None
            progress.end_idle(self.session.last_fetch_ms)
        self.session.list_changed(self)

    def forget_found(self) -> None:
        """What the last reading found has been told, or is not to be told."""
        self.region = None
        if not self.is_waiting:
            self.partition = None

    # -- what is told ----------------------------------------------------------------------------------------------------

    def has_news(self) -> bool:
        """Whether an incremental answer must name it after the last reading. From then on its client has been told."""
        if self.error_code:
            # Forget, so that the first answer after the error names the partition whatever it says.
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


class FetchSession:
    """The partitions of one full request, and of the incremental ones that follow while it is kept."""

    __slots__ = (
        "_client",
        "_is_letting_go",
        "_is_ordered",
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
        """When the last fetch came that its client knows to be heard of, by `elapsed_ms`."""
        self.fetches = 0
        self.size = 0
        self.changed: list[SessionPartition] = []
        self.fetch: FetchUnderWay | None = None
        self.has_ended = False
        self.has_stale = False
        """Whether some in `changed` are idle or forgotten."""
        self.is_watched = False
        """Whether its partitions may be idle: its client is there, and would be missed."""
        self._partitions: dict[bytes, dict[int, SessionPartition]] = {}
        self._last_turn = 0
        self._is_ordered = True  # whether `changed` is in the order of service
        self._client: Client | None = None
        self._reader: tuple[int, int, int, bool, int] | None = None
        self._is_letting_go = False

    def __iter__(self) -> Iterator[SessionPartition]:
        for of_topic in self._partitions.values():
            yield from of_topic.values()

    # -- which partitions ------------------------------------------------------------------------------------------------

    def find(self, topic: bytes, index: int) -> SessionPartition | None:
        """The partition, by what requests call its topic."""
        of_topic = self._partitions.get(topic)
        return of_topic.get(index) if of_topic is not None else None

    def add(self, topic: bytes, name: str | None, index: int) -> SessionPartition:
        """A partition that is not there yet comes last. `name` is that of the topic, None while it is unknown."""
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
        """Drop a partition; nothing happens when there is none."""
        of_topic = self._partitions.get(topic)
        asked = of_topic.pop(index, None) if of_topic is not None else None
        if of_topic is None or asked is None:
            return
        if not of_topic:
            del self._partitions[topic]
        self.size -= 1
        asked.let_go()
        asked.turn = FORGOTTEN
        self.has_stale = True

    def list_changed(self, asked: SessionPartition) -> None:
        """Fetches are to look at it."""
        if not asked.is_listed:
            asked.is_listed = True
            changed = self.changed
            if changed and changed[-1].turn > asked.turn:
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
        """Nothing that was found holds for the next fetch."""
        for of_topic in self._partitions.values():
            for asked in of_topic.values():
                asked.end()

    # -- fetches ---------------------------------------------------------------------------------------------------------

    def begin_fetch(self, fetch: FetchUnderWay) -> None:
        """A fetch is under way. One that was before is answered with nothing: what there is to tell is told the new one."""
        if self.fetch is not None:
            self.fetch.give_up()
        self.fetch = fetch

    def on_fetch(self, now_ms: int) -> None:
        """What the fetch asks for is known: it is one of all partitions that are idle now."""
        self.fetches += 1
        self.last_fetch_ms = now_ms

    def end_fetch(self, fetch: FetchUnderWay) -> None:
        """The fetch is answered, or its client has left."""
        if self.fetch is fetch:
            self.fetch = None

    def belong_to(self, client: Client, reader: tuple[int, int, int, bool, int]) -> None:
        """Who fetches: what was found for another reader does not hold, and nothing is watched for a client that has left.

        `reader` is all that decides what is found beside the partitions. A connection has one session that is watched: the client has left
        the one before.
        """
        self._is_letting_go = False
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
        """The client has left; it may come back by another connection. A fetch that waits is answered, with nothing.

        Many partitions are let go some in each turn of the loop. What is known of an idle one stays true until then, or until it is asked.
        """
        self._client = None
        self.is_watched = False
        self._is_letting_go = True
        self._let_some_go(list(self))
        if self.fetch is not None:
            self.fetch.give_up()

    def end(self) -> None:
        """The session is over."""
        if not self.has_ended:
            client = self._client
            if client is not None and client.on_lost == self.leave:
                client.on_lost = None
            self.leave()
            self.has_ended = True

    def _let_some_go(self, left: list[SessionPartition]) -> None:
        if not self._is_letting_go:
            return
        for asked in left[-LET_GO_PER_TURN:]:
            asked.let_go()
        del left[-LET_GO_PER_TURN:]
        if left:
            asyncio.get_running_loop().call_soon(self._let_some_go, left)


def _turn(asked: SessionPartition) -> int:
    return asked.turn


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows; wraps to 1, since 0 begins a session."""
    if epoch == FINAL_EPOCH:
        return FINAL_EPOCH
    return 1 if epoch == LAST_EPOCH else epoch + 1
