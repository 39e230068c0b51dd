"""Carries out a ShareFetch: opens the share partitions of the session, acquires records, waits until there are some, and answers.

The fetch waits in the lists of the share partitions, which new records and released ones notify.
Records are acquired only at the moment of the answer. Pages that are not in the page cache are read by a thread first. Records that are in
the remote store only are read as by Fetch (`RemoteFetch`).

Records of aborted transactions are archived for good. So the isolation level of the group is read again first: its change may still be on
the way to this broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from ottla.broker.fetching.remote_fetch import RemoteFetch
from ottla.broker.handlers.data.leader_hints import current_leader, leader_nodes
from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.handlers.shares.share_requests import locate
from ottla.broker.network.request_channel import CLOSE, Parts, Pending
from ottla.broker.quotas.quota_type import FETCH
from ottla.broker.request.context import RequestContext
from ottla.coordination.shares.extents import Extents
from ottla.coordination.shares.led_partitions import LedPartition
from ottla.coordination.shares.record_states import Acquired, AcquireMode
from ottla.coordination.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, ShareSession
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.protocol.cursors.share_fetch_answer import ShareFetchAnswer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.records.errors import RecordFormatError
from ottla.replication.errors import ReplicationError
from ottla.replication.reading.remote_read import Wanted
from ottla.replication.waiting.purgatory import DelayedOperation
from ottla.storage.errors import OffsetMovedToTieredStorage, StorageError
from ottla.storage.log.lookups import with_aborted
from ottla.storage.segment.cold_lookups import ColdRead
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

MOST_PARTITIONS: Final = 500
"""Partitions of a session that one fetch visits; the next one visits the others."""

MOST_BYTES: Final = 1024 * 1024
"""Bytes of a partition that one fetch looks at, unless the first batch has more."""

MOST_BATCHES: Final = 1000
"""Batches of all partitions of which one fetch acquires records: some milliseconds, and the records of as many small transactions as
members mostly ask for."""

NO_LEADER: Final = (0, 0)


class _Asked:
    """A partition of the fetch, and its result."""

    __slots__ = ("acquired", "error", "extents", "led", "offset", "place", "region", "topic")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.topic: str | None = None
        self.error = ErrorCode.NONE
        self.led: LedPartition | None = None
        self.offset = 0
        self.extents: Extents | None = None
        self.region: FileRegion | None = None
        self.acquired: list[Acquired] = []


class _Cold(Exception):
    """Pages of a partition have to be read by a thread."""

    def __init__(self, asked: _Asked, warm: Callable[[], None]) -> None:
        super().__init__()
        self.asked = asked
        self.warm = warm


class _Unsure(Exception):
    """The isolation level of the group may have changed."""


class WaitingFetch(DelayedOperation):
    """See the module. `pending` is the answer."""

    __slots__ = (
        "_acknowledged", "_asked", "_context", "_has_fetched", "_is_collecting", "_is_last_try", "_is_notified",
        "_is_sure", "_is_warming", "_opening", "_remote", "_request", "_session", "_shares", "_task", "pending",
    )  # fmt: skip

    def __init__(self, request: ShareFetchRequest, session: ShareSession, context: RequestContext) -> None:
        super().__init__()
        self._request = request
        self._session = session
        self._context = context
        self._shares = context.broker.coordinators.share_leader
        self._asked: list[_Asked] = []
        self._acknowledged: dict[Place, ErrorCode] | None = None
        """The errors of the acknowledgements, once all of them are stored."""
        self._opening = 1
        self._has_fetched = False
        self._is_last_try = False
        self._is_sure = False
        """Whether the isolation level was read just now."""
        self._is_warming = False
        self._is_collecting = False
        self._is_notified = False
        """Whether there was news while it was collecting: an acquisition may itself notify those that wait, and lead to the next one."""
        self._task: asyncio.Task[None] | None = None
        self._remote: RemoteFetch | None = None
        self.pending = Pending(on_closed=self._on_closed)

    # -- before the wait -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open the share partitions."""
        request = self._request
        if not request.is_renew_ack and request.share_session_epoch != FINAL_EPOCH:
            self._asked += map(_Asked, self._session.next_places(MOST_PARTITIONS))
        for asked in self._asked:
            located = locate(asked.place, self._context)
            asked.topic, asked.error = located.name, located.error
            if located.partition is not None:
                self._opening += 1
                self._shares.led.open(SharePartitionKey(self._session.key.group_id, *asked.place), located.partition, self._opened(asked))
        self._on_open()

    def _opened(self, asked: _Asked) -> Callable[[ErrorCode, LedPartition], None]:
        def then(error: ErrorCode, led: LedPartition) -> None:
            asked.error = error
            asked.led = led
            self._on_open()

        return then

    def _on_open(self) -> None:
        self._opening -= 1
        if self._opening or self.completed:
            return
        watched = [asked.led.waiters for asked in self._asked if asked.led is not None and not asked.error]
        timeout_ms = self._max_wait_ms() if watched and not any(asked.error for asked in self._asked) else 0
        self._shares.purgatory.try_complete_else_watch(self, watched, timeout_ms)

    def _max_wait_ms(self) -> int:
        """The time for which the fetch may wait: as with Fetch, that of the configuration if records are in the remote store only."""
        remote = self._context.broker.remote
        if remote is not None:
            for asked in self._asked:
                if asked.led is not None and not asked.error and not asked.led.is_dead:
                    offset = self._shares.led.next_fetch_offset(asked.led)
                    if offset is not None and offset < asked.led.partition.log.local_log_start_offset:
                        return remote.reads.max_wait_ms()
        return self._request.max_wait_ms

    # -- the purgatory ---------------------------------------------------------------------------------------------------------

    def try_complete(self) -> bool:
        """See DelayedOperation."""
        if self._is_warming or self._opening:
            return False
        if self._is_collecting:
            self._is_notified = True  # trying now would acquire records that the answer then does not have
            return False
        try:
            has_enough = self._collect()
        except _Cold as cold:
            return self._try_after(self._warm(cold))
        except _Unsure:
            return self._try_after(self._read_level())
        finally:
            self._is_sure = False
        if not has_enough and self._is_notified:
            asyncio.get_running_loop().call_soon(self._try_again)
        return has_enough and self.force_complete()

    def _try_after(self, work: Coroutine[Any, Any, None]) -> bool:
        self._is_warming = True
        self._task = asyncio.get_running_loop().create_task(self._after(work))
        return False

    async def _after(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        self._is_warming = False
        self._try_again()

    async def _warm(self, cold: _Cold) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, cold.warm)
        except OSError as error:
            self._fail(cold.asked, error)

    async def _read_level(self) -> None:
        await self._context.broker.administration.group_configs.read_again(self._session.key.group_id)
        self._is_sure = True

    def on_expiration(self) -> None:
        """Acquire what there is, in memory."""
        self._is_last_try = True
        self._collect()

    def on_complete(self) -> None:
        """The fetch has its records, or its time is over."""
        self._has_fetched = True
        self._end_remote()
        self._count()
        self._maybe_answer()

    def _count(self) -> None:
        stats = self._context.broker.data.replica_manager.topic_stats
        for name in {asked.topic for asked in self._asked if asked.topic is not None}:
            stats.of_any(name).share_fetch_requests += 1
        for name in {asked.topic for asked in self._asked if asked.topic is not None and asked.error}:
            stats.of_any(name).failed_share_fetch_requests += 1

    def on_acknowledged(self, errors: dict[Place, ErrorCode]) -> None:
        """The acknowledgements of the request are stored."""
        self._acknowledged = errors
        if self._request.share_session_epoch == FINAL_EPOCH:
            self._shares.sessions.end(self._session)
        self._maybe_answer()

    def _on_closed(self) -> None:
        """The member's connection is closed. Records that were acquired for it go back with its session."""
        self.cancel()
        self._end_remote()
        if self._session.owner is self._context.client:  # otherwise the member has come back by another connection
            self._shares.sessions.end(self._session)

    def _try_again(self) -> None:
        if not self.completed:
            self.try_complete()

    def _end_remote(self) -> None:
        if self._remote is not None:
            self._remote.end()

    # -- acquiring -------------------------------------------------------------------------------------------------------------

    def _collect(self) -> bool:
        """Acquire records, if there are as many as the member wants; whether the fetch is done. Raises _Cold and _Unsure, and has acquired
        nothing then; the last try raises neither."""
        self._is_collecting = True
        self._is_notified = False
        try:
            return self._collect_all()
        finally:
            self._is_collecting = False

    def _collect_all(self) -> bool:
        request = self._request
        left = request.max_bytes
        found = 0
        if self._remote is not None:
            self._remote.begin()
        for asked in self._asked:
            asked.extents = None
            if asked.led is None or asked.error:
                continue
            if asked.led.is_dead:
                asked.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif left > 0:
                size = self._read(asked, left, not found)
                left -= size
                found += size
        is_failed = any(asked.error for asked in self._asked)
        has_enough = found >= max(request.min_bytes, 1) or (self._remote is not None and self._remote.has_records)
        if not has_enough and not is_failed and not self._is_last_try:
            return False
        records, batches = request.max_records, MOST_BATCHES
        for asked in self._asked:
            if asked.extents is not None and records > 0 and batches > 0:  # the next fetch begins with the others
                records -= self._acquire(asked, asked.extents, records, batches)
                batches -= len(asked.extents.read)
                is_failed = is_failed or bool(asked.error)
        return records < request.max_records or is_failed

    def _read(self, asked: _Asked, left: int, min_one_batch: bool) -> int:
        """Find the bytes from which records may be acquired."""
        led = asked.led
        assert led is not None  # it is open
        try:
            offset = self._shares.led.next_fetch_offset(led)
            if offset is None:
                return 0
            asked.offset = offset
            log = led.partition.log
            is_committed = self._shares.settings.reads_committed(self._session.key.group_id)
            end_offset = self._shares.led.end_offset(led)
            if offset >= end_offset:
                return 0
            aborted: Sequence[AbortedTransaction] = ()
            try:
                found = log.read(offset, min(left, MOST_BYTES), end_offset, min_one_batch, False)
                region = found.region
            except OffsetMovedToTieredStorage:
                wanted = Wanted(offset, end_offset, min(left, MOST_BYTES), min_one_batch, is_committed, False)
                region, aborted = self._read_remote(asked, led, wanted, left)
            else:
                if is_committed and region is not None:
                    found, aborted = with_aborted(log, found, offset, min(left, MOST_BYTES), min_one_batch, False)
                    region = found.region
            if region is None:
                return 0
            if not region.is_cached():
                raise _Cold(asked, region.warm)
            if is_committed and aborted and not (self._is_sure or self._is_last_try):
                raise _Unsure
        except (ColdRead, _Cold) as cold:
            if not self._is_last_try:
                raise _Cold(asked, cold.warm) from None
            asyncio.get_running_loop().run_in_executor(None, _read_ahead, cold.warm)
            return 0
        except (StorageError, ReplicationError) as error:
            asked.error = partition_error(error, self._context.broker.data)
            return 0
        asked.extents = Extents(region, aborted if is_committed else ())
        return region.length

    def _read_remote(
        self, asked: _Asked, led: LedPartition, wanted: Wanted, left: int
    ) -> tuple[FileRegion | None, Sequence[AbortedTransaction]]:
        """The records that are here of those in the remote store. An error is answered at the end of the wait."""
        remote = self._context.broker.remote
        if remote is None:
            asked.error = ErrorCode.KAFKA_STORAGE_ERROR
            return None, ()
        if self._remote is None:
            self._remote = RemoteFetch(remote.reads, self._context.client, self._try_again)
        code, region, aborted = self._remote.find(led.partition, wanted, left, led.key, self._is_last_try)
        asked.error = ErrorCode.of(code)
        return region, aborted

    def _acquire(self, asked: _Asked, extents: Extents, records: int, batches: int) -> int:
        request = self._request
        led = asked.led
        assert led is not None  # it is open
        acquired = self._shares.led.acquire(
            led,
            self._session.key.member_id,
            asked.offset,
            islice(extents, batches),
            records,
            max(request.batch_size, 1),
            AcquireMode(request.share_acquire_mode),
        )
        if not acquired:
            if extents.failed is not None:  # otherwise the next fetch begins there
                self._fail(asked, extents.failed)
            elif extents.read:
                self._is_notified = True  # what has no records is archived now, and there may be some behind it
            return 0
        asked.acquired = acquired
        asked.region = extents.region(acquired[0].first, acquired[-1].last)
        led.partition.stats.bytes_out += asked.region.length
        partitions = self._session.partitions
        if partitions.pop(asked.place, True) is None:
            partitions[asked.place] = None  # the others come first next time
        return sum(last - first + 1 for first, last, _ in acquired)

    def _fail(self, asked: _Asked, what: OSError | RecordFormatError) -> None:
        """Answer that a batch cannot be read. Nothing is archived: the disk may be repaired, or another replica may lead."""
        assert asked.led is not None  # it is open
        log = asked.led.partition.log
        if isinstance(what, OSError) and asked.offset < log.local_log_start_offset:
            asked.error = ErrorCode.KAFKA_STORAGE_ERROR  # the cache of the remote store: the log is sound
            return
        try:
            raise log.files.failed_lookup(what, f"at or behind offset {asked.offset}: ")
        except (StorageError, ReplicationError) as error:
            asked.error = partition_error(error, self._context.broker.data)

    # -- the answer --------------------------------------------------------------------------------------------------------------

    def _maybe_answer(self) -> None:
        if not self._has_fetched or self._acknowledged is None:
            return
        try:
            self.pending.complete(self._parts(self._acknowledged))
        except Exception:  # a bug of the broker: the member would wait forever
            logger.exception("a ShareFetch cannot be answered; closing %s", self._context.client.connection_id)
            self.pending.complete(CLOSE)

    def _parts(self, acknowledged: dict[Place, ErrorCode]) -> Parts:
        context = self._context
        is_first = self._request.share_session_epoch == INITIAL_EPOCH
        by_topic: dict[bytes, list[_Asked]] = {}
        asked_for = {asked.place: asked for asked in self._asked}
        for place in acknowledged:
            asked_for.setdefault(place, _Asked(place))
        size = 0
        for place, asked in asked_for.items():
            if asked.error or asked.acquired or place in acknowledged or is_first:
                by_topic.setdefault(place[0], []).append(asked)
                size += 0 if asked.region is None else asked.region.length
        throttle_time_ms = context.connection.throttle(FETCH, size)
        lock_ms = self._shares.settings.rules_of(self._session.key.group_id).lock_ms
        answer = ShareFetchAnswer(context.correlation_id, throttle_time_ms, ErrorCode.NONE, lock_ms, len(by_topic))
        leaders: set[int] = set()
        for topic_id, partitions in by_topic.items():
            answer.begin_topic(topic_id, len(partitions))
            for asked in partitions:
                leader = self._leader_of(asked)
                if leader is not NO_LEADER:
                    leaders.add(leader[0])
                answer.put(asked.place[1], asked.error, acknowledged.get(asked.place, 0), leader, asked.region, asked.acquired)
            answer.end_topic()
        nodes = leader_nodes(context.broker.data.replica_manager, leaders, context.client.listener_name) if leaders else ()
        return answer.finish(nodes)  # type: ignore[return-value]  # pieces are parts

    def _leader_of(self, asked: _Asked) -> tuple[int, int]:
        if asked.error != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return NO_LEADER
        broker = self._context.broker
        topic_id, index = asked.place
        return current_leader(broker.data.replica_manager, broker.metadata.names_by_id.get(topic_id, ""), index)


def _read_ahead(warm: Callable[[], None]) -> None:
    """Reads pages for the next fetch, which finds an error again."""
    with suppress(OSError):
        warm()
