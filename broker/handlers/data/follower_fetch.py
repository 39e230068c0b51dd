"""Fetch of a follower in its session, while nothing is out of the ordinary: the hot path between brokers.

Called with the frame, before anything is decoded. A follower names the partitions of which it has more than when it last asked, and is
told of those that have more for it. What the leader learns it learns at once; records are looked for once only, when the answer leaves:
at the end of the turn of the loop, or of the first turn that brings nothing more, so that all that was appended meanwhile goes into one
answer. Each answer costs leader and follower a round, however much is in it. It costs what the partitions cost that have changed, not what
the session has: the others are watched (`session_watch`).

Everything out of the ordinary is left to `handle_fetch`: new sessions, those that are not watched yet (see `begin_to_watch`), forgotten
topics, replicas that were deposed or reassigned, logs that part, offsets out of range, old segments, quotas, more than one byte to wait
for. Nothing has happened then but what happens again in the same way. What turns out of the ordinary while a fetch waits is answered by
the same code. A test holds both ways equal.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from broker.fetching.fetch_sessions import SessionPartition
from broker.fetching.session_watch import SessionWatch, WatchedPartition
from broker.handlers.data.fetch_reading import Fetch, portions
from broker.loop.purgatory import DelayedOperation
from broker.network.request_channel import Completion, Parts, Pending
from broker.request.context import Asker, RequestContext
from broker.request.services import Services
from broker.request.turns import Steps
from broker.serving.route import encoder
from protocol.api_keys import ApiKey
from protocol.follower_fetch import FIRST_VERSION, encode_follower_answer, read_follower_fetch
from protocol.messages.fetch import FetchRequest, ReplicaState
from replication.leader.partition import Partition
from storage.disk.clock import elapsed_ms
from storage.errors import StorageError
from storage.log.partition_log import PartitionLog
from storage.segment.file_region import FileRegion

if TYPE_CHECKING:
    from broker.network.connection import Connection

MOST_TURNS: Final = 4
"""For how many turns of the loop an answer is held back while every one of them brings more."""


def handle_follower_fetch_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, broker: Services
) -> Pending | None:
    """The answer to come, or None to take the ordinary way."""
    request = read_follower_fetch(frame, offset) if version >= FIRST_VERSION else None
    if request is None:
        return None
    replica_id, max_wait_ms, min_bytes, max_bytes, session_id, session_epoch, topics = request
    session = broker.fetch_sessions.sessions.get(session_id)
    if (
        session is None
        or session.epoch != session_epoch
        or session_epoch <= 0
        or not (session.is_follower and session.uses_topic_ids)
        or min_bytes != 1
        or max_wait_ms <= 0
    ):
        return None
    replicas = broker.replica_manager
    quota = replicas.leader_quota
    if quota is not None and quota.is_limited:
        return None
    known = session.partitions
    for topic_id, named in topics:
        for index, leader_epoch, fetch_offset, last_fetched_epoch, start, partition_max_bytes, _ in named:
            asked = known.get((topic_id, index))
            if asked is None or asked.leader_epoch != leader_epoch:
                return None
            settled = asked.watched
            if settled is not None and settled.progress is not None:
                settled.end()
            asked.offset = fetch_offset
            asked.last_fetched_epoch = last_fetched_epoch
            asked.start = start
            asked.max_bytes = partition_max_bytes
    watch = session.watch
    if watch is None or watch.replica_id != replica_id or watch.fetch is not None:
        return None
    unsettled = tuple(watch.unsettled)
    for watched in unsettled:
        partition = watched.partition
        asked = watched.asked
        if not is_ordinary(partition, asked, replica_id) or asked.offset < partition.log.active_segment.base_offset:
            return None
    now_ms = elapsed_ms(broker.clock)
    broker.fetch_sessions.advance(session_id, now_ms)
    watch.last_fetch_ms = now_ms
    watch.fetches += 1
    for watched in unsettled:
        partition = watched.partition
        asked = watched.asked
        partition.stats.fetch_requests += 1
        partition.on_follower_fetch(replica_id, asked.offset, asked.start, now_ms)
    unread = watch.settle()
    pending = Pending()
    fetch = FollowerFetch(version, correlation_id, max_wait_ms, max_bytes, watch, pending, connection, broker)
    pending.on_closed = fetch.cancel
    watch.fetch = fetch
    if unread:
        fetch.gather(unread)
    else:
        fetch.wait()
    return pending


def may_be_watched(fetch: Fetch) -> bool:
    """Whether a follower goes on with a session that is not watched, and nothing of the request itself is out of the ordinary."""
    session = fetch.session
    return (
        session is not None
        and session.is_follower
        and session.uses_topic_ids
        and fetch.context.api_version >= FIRST_VERSION
        and fetch.params.replica_id >= 0
        and fetch.min_bytes == 1
        and fetch.max_wait_ms > 0
        and ((quota := fetch.context.broker.replica_manager.leader_quota) is None or not quota.is_limited)
    )


def begin_to_watch(fetch: Fetch, now_ms: int) -> Steps[Pending | None]:
    """Watch the session of such a fetch, and answer that in this way; None, with nothing done, if something is out of the ordinary."""
    session = fetch.session
    assert session is not None
    context = fetch.context
    broker = context.broker
    replica_id = fetch.params.replica_id
    partitions: list[tuple[Partition, SessionPartition]] = []
    for some in portions(list(session.partitions.values())):
        for asked in some:
            partition = broker.replica_manager.partition(asked.name or "", asked.partition)
            if partition is None or not is_ordinary(partition, asked, replica_id) or _reads_old_segment(partition, asked):
                return None
            partitions.append((partition, asked))
        yield
    if context.client.is_lost or session.watch is not None or broker.fetch_sessions.sessions.get(session.session_id) is not session:
        return None
    watch = SessionWatch(session, replica_id, context.client)
    watch.last_fetch_ms = now_ms
    watch.fetches = 1
    pending = Pending()
    operation = FollowerFetch(
        context.api_version, context.correlation_id, fetch.max_wait_ms, fetch.max_bytes, watch, pending, context, broker
    )
    pending.on_closed = operation.cancel
    watch.fetch = operation
    for others in portions(partitions):
        for partition, asked in others:
            watched = watch.add(partition, asked)
            if is_ordinary(partition, asked, replica_id):  # else the answer says what it is now
                partition.stats.fetch_requests += 1
                partition.on_follower_fetch(replica_id, asked.offset, asked.start, now_ms)
                if asked.offset == partition.log.log_end_offset == asked.high_watermark and watched.maybe_settle():
                    continue
            watch.unsettled.append(watched)
        yield
        if operation.completed:
            return pending
    operation.begin()
    return pending


def is_ordinary(partition: Partition, asked: SessionPartition, replica_id: int) -> bool:
    """Whether there is nothing to tell of a partition but its records and offsets."""
    log = partition.log
    return (
        partition.is_leader
        and asked.leader_epoch == partition.leader_epoch
        and (asked.last_fetched_epoch in (log.latest_epoch, -1) or not has_parted(log, asked))
        and asked.topic_id == log.topic_id
        and log.log_start_offset <= asked.offset <= log.log_end_offset
        and replica_id in partition.followers
        and log.truncation is None
    )


def _reads_old_segment(partition: Partition, asked: SessionPartition) -> bool:
    return asked.offset < partition.log.active_segment.base_offset


def has_parted(log: PartitionLog, asked: SessionPartition) -> bool:
    """Whether the follower's log is another than ours, or ours cannot tell. One that merely has nothing of our epoch yet is not."""
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    return epoch != asked.last_fetched_epoch or end_offset < asked.offset


Told = tuple[int, int, int, int, FileRegion | None]
"""(partition, high watermark, last stable offset, log start offset, records)."""


class FollowerFetch(DelayedOperation):
    """One such fetch on its way. It waits in the purgatory while there is nothing to read."""

    __slots__ = (
        "_broker",
        "_connection",
        "_correlation_id",
        "_max_bytes",
        "_max_wait_ms",
        "_pending",
        "_turns",
        "_unread",
        "_version",
        "_watch",
    )

    def __init__(
        self,
        version: int,
        correlation_id: int,
        max_wait_ms: int,
        max_bytes: int,
        watch: SessionWatch,
        pending: Pending,
        connection: Asker,
        broker: Services,
    ) -> None:
        super().__init__()
        self._version = version
        self._correlation_id = correlation_id
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._watch = watch
        self._pending = pending
        self._connection = connection
        self._broker = broker
        self._turns = 0
        self._unread = 0

    def begin(self) -> None:
        """All is watched now: wait, or answer soon."""
        if any(not is_ordinary(watched.partition, watched.asked, self._watch.replica_id) for watched in self._watch.unsettled):
            self.force_complete()
        elif unread := sum(watched.partition.log.log_end_offset - watched.asked.offset for watched in self._watch.unsettled):
            self.gather(unread)
        else:
            self.wait()

    def wait(self) -> None:
        """Until something is appended, changes hands, or the time is up."""
        self._broker.fetch_purgatory.wait(self, len(self._watch.session.partitions), self._max_wait_ms)
        self._watch.waiting = self

    def gather(self, unread: int) -> None:
        """Answer at the end of this turn of the loop, or of the next ones as long as they bring more than the `unread` records."""
        self._watch.waiting = None
        self._turns = 0
        self._unread = unread
        asyncio.get_running_loop().call_soon(self._on_turn)

    def try_complete(self) -> bool:
        """Something has moved; what, is seen at the end of the turn."""
        self.gather(0)
        return False

    def _on_turn(self) -> None:
        if self.completed:
            return
        unread = 0
        for watched in self._watch.unsettled:
            partition = watched.partition
            asked = watched.asked
            if not partition.is_leader or partition.leader_epoch != asked.leader_epoch:
                self.force_complete()
                return
            unread += partition.log.log_end_offset - asked.offset
        self._turns += 1
        if unread != self._unread and self._turns < MOST_TURNS:
            self._unread = unread
            asyncio.get_running_loop().call_soon(self._on_turn)
        elif unread:
            self.force_complete()
        else:
            self._watch.waiting = self

    def cancel(self) -> None:
        """See DelayedOperation. A follower whose connection broke begins another session."""
        if not self.completed:
            self._watch.fetch = self._watch.waiting = None
            super().cancel()
            self._watch.end()

    def on_expiration(self) -> None:
        """Count it; the purgatory counts all."""
        self._broker.replica_manager.topic_stats.follower_fetch_expirations += 1

    def on_complete(self) -> None:
        """Answer with what is there now."""
        self._watch.fetch = self._watch.waiting = None
        self._pending.complete(self._answer() or self._ordinary_answer())

    def _answer(self) -> Parts | None:
        """The answer; None when something is out of the ordinary."""
        watch = self._watch
        replica_id = watch.replica_id
        unsettled = watch.in_order()
        for watched in unsettled:
            if not is_ordinary(watched.partition, watched.asked, replica_id):
                return None
        broker = self._broker
        left = min(self._max_bytes, broker.fetch_max_bytes)
        is_first = True
        served: list[WatchedPartition] = []
        topics: list[tuple[bytes, list[Told]]] = []
        last_id = b""
        try:
            for watched in unsettled:
                partition = watched.partition
                asked = watched.asked
                log = partition.log
                offset = asked.offset
                end_offset = log.log_end_offset
                region = None
                if offset != end_offset:
                    region = log.read(offset, asked.max_bytes if asked.max_bytes < left else left, end_offset, is_first).region
                high_watermark = log.high_watermark
                log_start_offset = log.log_start_offset
                topic_id = asked.topic_id
                if region is not None:
                    is_first = False
                    size = region.length
                    left = left - size if size < left else 0
                    stats = partition.stats
                    stats.replication_bytes_out += size
                    if replica_id in partition.adding_replicas:
                        stats.reassignment_bytes_out += size
                    served.append(watched)
                elif asked.high_watermark == high_watermark and asked.log_start_offset == log_start_offset:
                    continue
                asked.high_watermark = high_watermark
                asked.log_start_offset = log_start_offset
                if topic_id != last_id:
                    last_id = topic_id
                    told: list[Told] = []
                    topics.append((topic_id, told))
                told.append((asked.partition, high_watermark, log.last_stable_offset, log_start_offset, region))
        except StorageError:
            for watched in unsettled:
                watched.asked.high_watermark = -1  # what was to be said is not sent, so it is said again
            return None
        session = watch.session
        if len(served) < len(session.partitions):
            for watched in served:
                watch.serve_last(watched)
        fetches = broker.replica_manager.topic_stats.follower_fetches
        fetches[self._version] = fetches.get(self._version, 0) + 1
        return cast("Parts", encode_follower_answer(self._correlation_id, session.session_id, topics))

    def _ordinary_answer(self) -> Completion:
        watch = self._watch
        watch.end()
        session = watch.session
        broker = self._broker
        version = self._version
        connection = self._connection
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=watch.replica_id), max_wait_ms=self._max_wait_ms, min_bytes=1, max_bytes=self._max_bytes
        )
        encode = encoder(version, header_is_flexible=True, in_parts=True)
        context = RequestContext(ApiKey.FETCH, version, self._correlation_id, None, connection, broker, encode)
        fetch = Fetch(request, context, session.partitions, session)
        now_ms = elapsed_ms(broker.clock)
        fetch.read(now_ms, is_first_read=False)
        return context.encode(fetch.response(now_ms))
