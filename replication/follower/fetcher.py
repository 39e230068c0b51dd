"""Fetches the partitions that follow one leader, over one connection: fetch, append, truncate, again.

Kafka's ReplicaFetcherThread. `FetcherPool` makes one per (leader, fetcher id), adds and removes partitions, and runs it as one task with a
plain loop. Rules of a step:

* Code between two awaits has a single owner. After an await only a `FollowedPartition` that is active and in the epoch of its partition is
  changed. So an answer to a request of an older epoch, or from before the partition was unfollowed, has no effect.
* Failures are retried after `replica.fetch.backoff.ms`, some of them sooner. A partition whose log cannot be written or whose leader epoch
  is fenced has failed, and waits for the controller's next request.
* A fetch costs as much as its answer: no task, no lock and no log line per fetch, one pass over the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import final

from ottla.protocol.cursors.fetch_answer_reader import FetchAnswerReader
from ottla.protocol.cursors.request_reader import END, PARTITION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, ReplicaState
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.follower import fetcher_failures, remote_start, truncation
from ottla.replication.follower.fetch_session import NO_EPOCH, FetchSessionHandler, FollowedPartition, Found
from ottla.replication.follower.fetcher_settings import FetcherSettings
from ottla.replication.follower.leader_requests import FIRST_FETCH_WITH_REPLICA_STATE
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.peer import Peer, PeerUnavailable
from ottla.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    LogBeingTruncated,
    LogDirFailure,
    OffsetOutOfRange,
    TopicIdNotDurable,
    UnexpectedAppendOffset,
)
from ottla.storage.log.origins import REPLICATION
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.validation.run import BatchRun

logger = logging.getLogger(__name__)

BYTES_PER_TURN = 1 << 20
"""Bytes appended per turn of the event loop, more or less: 0.5 ms."""

BYTES_PER_BATCH = 800
"""Cost of a batch apart from its records, counted in bytes: 0.4 µs."""

BYTES_PER_PARTITION = 2048
"""Cost of a partition apart from its records, counted in bytes: 2 µs."""

BRIEF_MS = 30
"""Time that newly followed partitions wait for a pending fetch, in ms."""

BRIEF_SECONDS = 2.0
"""Time after new partitions in which no fetch waits longer at the leader, in seconds: more partitions often follow soon."""


@final
class Fetcher:
    """A fetcher for one leader. Counters are plain attributes, for the metrics."""

    __slots__ = (
        "_awake",
        "_brief_until",
        "_broker_epoch",
        "_interrupted",
        "_interruption",
        "_on_idle",
        "_replica_state",
        "_task",
        "beginning_lower",
        "beginning_remotely",
        "bytes_in",
        "client_id",
        "delayed",
        "followed",
        "leader_id",
        "on_failed",
        "peer",
        "quiet_until",
        "report_failure",
        "requests",
        "session",
        "settings",
        "throttled",
        "truncating",
        "unanswered",
    )

    def __init__(
        self,
        settings: FetcherSettings,
        leader_id: int,
        client_id: str,
        peer: Peer,
        broker_epoch: Callable[[], int],
        *,
        on_failed: Callable[[TopicPartition], None],
        report_failure: Callable[[LogDirFailure], None],
        on_idle: Callable[[Fetcher], None],
    ) -> None:
        """`on_failed` is called for each failed partition, `on_idle` when no partition is left; then `run` returns."""
        self.settings = settings
        self.leader_id = leader_id
        self.client_id = client_id
        self.peer = peer
        self.followed: dict[TopicPartition, FollowedPartition] = {}
        self.requests = 0
        self.bytes_in = 0
        version = settings.versions.fetch
        request = FetchRequest(max_wait_ms=settings.max_wait_ms, min_bytes=settings.min_bytes, max_bytes=settings.response_max_bytes)
        self.session = FetchSessionHandler(request, version)
        self._replica_state = ReplicaState(replica_id=settings.broker_id)
        self._broker_epoch = broker_epoch
        self.on_failed = on_failed
        self.report_failure = report_failure
        self._on_idle = on_idle
        self._awake = asyncio.Event()
        self.unanswered = 0
        """Consecutive fetches without an answer."""
        self.quiet_until = 0.0
        """The time of the event loop until which a denial is not logged again."""
        self._task: asyncio.Task[None] | None = None  # set while it waits for an answer
        self._brief_until = 0.0
        """The time of the event loop until which fetches are brief; 0 if they are not."""
        self._interruption: asyncio.TimerHandle | None = None
        self._interrupted = False
        self.delayed: dict[FollowedPartition, None] = {}
        """Failed partitions that wait for a retry, in the order of their retries."""
        self.throttled: dict[FollowedPartition, None] = {}
        """Partitions that wait for the quota."""
        self.truncating: dict[FollowedPartition, None] = {}
        """Partitions that must be truncated before they are fetched."""
        self.beginning_lower: list[tuple[FollowedPartition, Found, UnexpectedAppendOffset]] = []
        """Partitions whose log is empty and begins inside the batch that was received."""
        self.beginning_remotely: dict[FollowedPartition, asyncio.Task[None]] = {}
        """Partitions whose log begins behind the records in the remote store, once their task has read what it needs there."""

    # -- called by the pool

    def follow(self, partition: Partition) -> None:
        """Fetch a partition in its current leader epoch. Does nothing if it is fetched in that epoch already."""
        topic_partition = partition.topic_partition
        known = self.followed.get(topic_partition)
        if known is not None:
            is_same = known.leader_epoch == partition.leader_epoch and known.partition is partition
            if is_same and partition.fetched_topic_id in (known.topic_id, partition.topic_id):
                return
            self.unfollow(topic_partition)
        log = partition.log
        settings = self.settings
        knows_epochs = settings.versions.truncates_on_fetch and log.latest_epoch is not None
        offset = log.log_end_offset if knows_epochs else log.high_watermark
        followed = FollowedPartition(partition, offset, self.last_epoch(log), settings.max_bytes)
        self.followed[topic_partition] = followed
        if knows_epochs:
            self.session.add(followed)
        else:
            followed.is_truncating = True
            self.truncating[followed] = None
        self._wake_for_more()

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition, if it is followed here."""
        followed = self.followed.pop(topic_partition, None)
        if followed is not None:
            followed.is_active = False
            self.session.remove(followed)
            self.delayed.pop(followed, None)
            self.throttled.pop(followed, None)
            self.truncating.pop(followed, None)
            beginning = self.beginning_remotely.pop(followed, None)
            if beginning is not None:
                beginning.cancel()
            self._awake.set()

    def on_begun(self, followed: FollowedPartition) -> None:
        """The task of a partition that begins behind remote records has ended: fetch it, or try again later."""
        self.beginning_remotely.pop(followed, None)
        if followed.is_wanted:
            self._wake_for_more()
        else:
            self._awake.set()

    def _wake_for_more(self) -> None:
        """Send a request soon, because there are partitions that no pending fetch contains. A brief fetch ends soon by itself."""
        self._awake.set()
        if self._task is not None:
            loop = asyncio.get_running_loop()
            self._brief_until = loop.time() + BRIEF_SECONDS
            if self._interruption is None and self.session.request.max_wait_ms > BRIEF_MS:
                self._interruption = loop.call_later(BRIEF_MS / 1000, self._interrupt, self.requests)

    def wake(self) -> None:
        """Check for requests to send."""
        self._awake.set()

    # -- the loop

    async def run(self) -> None:
        """Fetch until no partition is followed."""
        while self.followed:
            try:
                await self._step()
            except Exception:
                logger.exception("%s: unexpected error while fetching from ottla.broker %d; continuing", self.client_id, self.leader_id)
                self.session.on_failure()
                fetcher_failures.delay_all(self, self.followed.values())
        self._on_idle(self)
        await self.peer.close()

    async def _step(self) -> None:
        settings = self.settings
        self._awake.clear()
        if settings.is_held:
            await self._idle()
            return
        if self.delayed:
            fetcher_failures.resume(self)
        if self.truncating:
            await truncation.truncate_before_fetching(self)
        if settings.quota.is_limited or self.throttled:
            self._obey_quota()
        session = self.session
        if session.has_no_request:
            await self._idle()
            return
        request = session.prepare()
        version = session.version
        self._set_replica(request, version)
        request.max_wait_ms = self._max_wait_ms() if self.delayed or self._brief_until else settings.max_wait_ms
        self.requests += 1
        task = self._task = asyncio.current_task()
        try:
            answer = await self.peer.fetch(version, request, timeout_ms=settings.timeout_ms)
        except asyncio.CancelledError:
            if not self._interrupted or task is None or task.uncancel():
                raise
            self._interrupted = False
            session.on_failure()
            return
        except PeerUnavailable as error:
            session.on_failure()
            fetcher_failures.on_unreachable(self, error)
            return
        finally:
            self._task = None
        if self.unanswered:
            self.unanswered = 0
            logger.info("%s: broker %d answers again", self.client_id, self.leader_id)
        if session.on_answer(answer.error_code, answer.session_id):
            await self._take(answer)
        else:
            code = ErrorCode.of(answer.error_code)
            logger.info("%s: broker %d refused a fetch (%s); a new session follows", self.client_id, self.leader_id, code.name)
            if code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR or session.keeps_failing:
                fetcher_failures.delay_all(self, session.asked())

    def _interrupt(self, request: int) -> None:
        """Interrupt the pending fetch, because partitions were added that it does not contain.

        It may wait for records that will only be written after a follower has fetched. A new connection costs less than
        `replica.fetch.wait.max.ms`. But the next request has all partitions, so the fetches after it are brief.
        """
        self._interruption = None
        if self._task is not None and self.requests == request:
            self._interrupted = True
            self._task.cancel()

    def _max_wait_ms(self) -> int:
        """Time for which a fetch may wait at the leader: brief after new partitions, at most until the first delayed one is due. In ms."""
        wait_ms = self.settings.max_wait_ms
        now = asyncio.get_running_loop().time()
        if now < self._brief_until:
            wait_ms = min(wait_ms, BRIEF_MS)
        else:
            self._brief_until = 0.0
        if self.delayed:
            left = min(each.delayed_until for each in self.delayed) - now
            wait_ms = max(0, min(wait_ms, int(left * 1000)))
        return wait_ms

    def _set_replica(self, request: FetchRequest, version: int) -> None:
        state = self._replica_state
        if version >= FIRST_FETCH_WITH_REPLICA_STATE:
            state.replica_epoch = self._broker_epoch()
            request.replica_state = state
            request.replica_id = -1
        else:
            request.replica_state = ReplicaState()
            request.replica_id = state.replica_id

    async def _idle(self) -> None:
        """Wait until there are partitions to fetch, or the next delayed one is due."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.settings.backoff_ms / 1000
        if self.delayed:
            until = min(until, *(each.delayed_until for each in self.delayed))
        timer = loop.call_at(until, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()

    # -- answers

    async def _take(self, answer: FetchAnswerReader) -> None:
        """Process an answer in one pass, then the partitions that need more requests."""
        session = self.session
        uses_topic_ids = session.uses_topic_ids
        wanted = session.wanted
        diverging: list[tuple[FollowedPartition, int, int]] = []
        out_of_range: list[FollowedPartition] = []
        moved: list[FollowedPartition] = []
        in_this_turn = 0
        while (element := answer.advance()) != END:
            if element != PARTITION:
                continue
            topic = answer.topic
            of_topic = wanted.get(topic if uses_topic_ids else topic.decode())
            followed = of_topic.get(answer.index) if of_topic is not None else None
            # The offset differs from the requested one if the partition was unfollowed and followed again meanwhile.
            if followed is None or followed.requested_offset != followed.offset:
                continue
            error_code = answer.partition_error_code
            if error_code:
                if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(followed)
                elif error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                    moved.append(followed)
                else:
                    fetcher_failures.on_error_code(self, followed, ErrorCode.of(error_code))
            elif answer.diverging_epoch >= 0:
                diverging.append((followed, answer.diverging_epoch, answer.diverging_end_offset))
            else:
                found = Found(answer.records(), answer.high_watermark, answer.log_start_offset)
                in_this_turn += self.process(followed, found) + BYTES_PER_PARTITION
                if in_this_turn >= BYTES_PER_TURN:
                    in_this_turn = 0
                    await asyncio.sleep(0)
        while self.beginning_lower:
            await truncation.begin_lower(self, *self.beginning_lower.pop())
        await truncation.cut_all(self, diverging)
        for followed in out_of_range:
            await truncation.on_out_of_range(self, followed)
        for followed in moved:
            await remote_start.on_moved_to_tiered_storage(self, followed)

    def process(self, followed: FollowedPartition, found: Found) -> int:
        """Append the received records and move the offsets. Returns the cost, in bytes appended."""
        partition: Partition = followed.partition
        if partition.leader_epoch != followed.leader_epoch or partition.is_leader:
            self.unfollow(followed.topic_partition)
            return 0
        log = partition.log
        records = found.records
        cost = 0
        try:
            if records:
                cost = self._append(followed, log, records)
                if not cost:
                    return 0
                partition.on_log_end_moved()
            followed.last_error = 0
            high_watermark = found.high_watermark
            lag = high_watermark - followed.offset
            followed.lag = lag if lag > 0 else 0
            partition.move_high_watermark(high_watermark)
            if found.log_start_offset > log.log_start_offset:
                log.increment_log_start_offset(found.log_start_offset, "the leader's moved")
            if log.log_start_offset != followed.asked.log_start_offset:
                self.session.touch(followed)
        except (CorruptRecord, InvalidRecord, OffsetOutOfRange) as error:
            logger.error("%s: records of broker %d at offset %d cannot be appended: %s; retrying in %d ms", followed.topic_partition,
                         self.leader_id, followed.offset, error, self.settings.backoff_ms)  # fmt: skip
            fetcher_failures.delay(self, followed)
            return 0
        except UnexpectedAppendOffset as unexpected:
            if log.begins_inside_batch(unexpected):
                self.beginning_lower.append((followed, found, unexpected))
            else:
                fetcher_failures.on_broken(self, followed, unexpected)
            return 0
        except LogBeingTruncated:
            # Its former fetcher is truncating it. A truncation that has failed is repeated later.
            has_failed = log.truncations.current is not None and log.truncations.current.error is not None
            fetcher_failures.delay(self, followed, None if has_failed else fetcher_failures.FIRST_LATE_MS)
            return 0
        except TopicIdNotDurable:
            fetcher_failures.delay(self, followed, fetcher_failures.FIRST_LATE_MS)
            return 0
        except Exception as error:
            fetcher_failures.on_broken(self, followed, error)
            return 0
        return cost

    def _append(self, followed: FollowedPartition, log: PartitionLog, records: memoryview) -> int:
        """Append records, or the first ones of very many. Returns the cost in bytes; 0 if the log has not grown. Raises StorageError."""
        offset = followed.offset
        if log.log_end_offset != offset:
            raise UnexpectedAppendOffset(log.topic_partition, offset, offset, log.log_end_offset)
        run = BatchRun(records)
        log.append(run, followed.leader_epoch, log.context.clock.now_ms(), REPLICATION)
        next_offset = run.last_offset + 1
        if next_offset == offset:
            # An incomplete batch, or one of a later leader. An immediate retry would return the same.
            fetcher_failures.delay(self, followed)
            return 0
        followed.offset = next_offset
        followed.last_fetched_epoch = self.last_epoch(log)
        size = run.size
        self.bytes_in += size
        partition: Partition = followed.partition
        stats = partition.stats
        stats.replication_bytes_in += size
        if partition.adding_replicas and partition.broker_id in partition.adding_replicas:
            stats.reassignment_bytes_in += size
        session = self.session
        session.touch(followed)
        if not session.session_id:
            session.serve_last(followed)
        quota = self.settings.quota
        if quota.is_limited and quota.is_throttled(log):
            quota.count(size)
        return size + run.work * BYTES_PER_BATCH

    def is_current(self, followed: FollowedPartition) -> bool:
        """Whether this fetcher may still change the partition. To be called after every await."""
        return followed.is_active and followed.partition.leader_epoch == followed.leader_epoch and not followed.partition.is_leader

    def last_epoch(self, log: PartitionLog) -> int:
        """The epoch of the log's last batch, if the leader needs it."""
        epoch = log.latest_epoch
        return NO_EPOCH if epoch is None or not self.settings.versions.truncates_on_fetch else epoch

    # -- quota

    def _obey_quota(self) -> None:
        """Hold back throttled replicas that lag behind while the quota is exceeded. Replicas in sync are not held back, to keep the ISR."""
        quota = self.settings.quota
        is_exceeded = quota.is_exceeded()
        for followed in list(self.throttled):
            if not is_exceeded or not quota.is_throttled(followed.partition.log):
                del self.throttled[followed]
                self.session.add(followed)
        if is_exceeded:
            for followed in self.session.all():
                if not followed.is_in_sync and quota.is_throttled(followed.partition.log):
                    self.session.remove(followed)
                    self.throttled[followed] = None
