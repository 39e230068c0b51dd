"""Implements the log of one replica, which `replication` appends to, reads, truncates and queries.

Owns the segments of a partition's directory, its producer state and leader epochs, and the offsets that limit it. `recovery.open_log`
creates it. It is called only on the event loop. This module appends. A read returns a region of a segment's file, which `BatchReader`
finds. The rarer operations belong to objects of the log, which callers use directly: `rolls`, `flushes`, `truncations` and `discards`.
Threads do the long work: `FlushPlan`, `Truncation`, and `Discard` or `Swap` of segments. `lookups` searches by timestamp.

Invariants: log_start_offset <= high_watermark <= log_end_offset; the last segment is the active one and begins at or below the log end
offset. An OSError becomes a `LogDirFailure`, after which the log directory must be taken offline.
"""

import logging
from collections.abc import Callable, Sequence
from typing import final

from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import CONTROL_MASK, CURRENT_MAGIC, NO_SEQUENCE, TRANSACTIONAL_MASK
from ottla.protocol.records.builder import read_marker
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.leader_epochs import LeaderEpochCache
from ottla.storage.disk.partition_metadata import ZERO_UUID
from ottla.storage.errors import (
    CorruptRecord,
    LogBeingTruncated,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    UnexpectedAppendOffset,
)
from ottla.storage.log.batch_reader import BatchReader
from ottla.storage.log.context import LogContext
from ottla.storage.log.discards import Discards, OnReplaced, ignore_result
from ottla.storage.log.flushes import Flushes
from ottla.storage.log.log_files import LogFiles
from ottla.storage.log.origins import CLIENT, REPLICATION
from ottla.storage.log.pending_topic_id import PendingTopicId
from ottla.storage.log.producer_replay import replay_producer
from ottla.storage.log.reads import FetchSlice
from ottla.storage.log.rolls import Rolls
from ottla.storage.log.truncation import Truncation
from ottla.storage.log.truncations import Truncations
from ottla.storage.producers.state import SEQUENCES, ProducerStateEntry
from ottla.storage.producers.state_manager import ProducerStateManager
from ottla.storage.producers.verification import VerificationStateEntry, begin_verification
from ottla.storage.remote.lineage import NO_OFFSET
from ottla.storage.remote.tier import Tier, is_tiered
from ottla.storage.segment.cold_lookups import LOOKUP_ERRORS
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.log_settings import LogSettings, rules_for
from ottla.storage.segment.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.segment.refusing_segments import SegmentBeingTruncated
from ottla.storage.segment.segment import NEVER, Segment
from ottla.storage.segment.swap import Swap
from ottla.storage.validation.batch import check_fits_segment, judge
from ottla.storage.validation.replicated import judge_replicated
from ottla.storage.validation.run import BatchRun

log = logging.getLogger(__name__)

ShouldDelete = Callable[[Segment, Segment | None], bool]
"""Whether a segment should be deleted, given the one that follows it."""
NO_LIMIT = 2**31 - 1


@final
class PartitionLog:
    """A partition's log on this broker."""

    __slots__ = (
        "config",
        "context",
        "discards",
        "files",
        "flushes",
        "high_watermark",
        "latest_epoch",
        "leader_epochs",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "pending_topic_id",
        "producer_state",
        "reader",
        "rolls",
        "rules",
        "segments",
        "tier",
        "topic_id",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        log_dir: str,
        directory: str,
        config: TopicConfig,
        *,
        segments: LogSegments,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        keeps_tier: bool = False,
    ) -> None:
        """`keeps_tier`: the remote store may have records of the log, although its topic has no remote storage now."""
        self.context = context
        self.topic_partition = topic_partition
        self.topic_id = ZERO_UUID
        self.pending_topic_id: PendingTopicId | None = None
        """Writes the topic id, as long as a power cut might lose it. Nothing is appended meanwhile."""
        self.log_dir = log_dir
        self.files = LogFiles(self, context, topic_partition, log_dir, directory)
        self.config = config
        self.rules = rules_for(topic_partition, config)
        self.segments = segments
        self.producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.latest_epoch = leader_epochs.latest_epoch
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.tier: Tier | None = None
        """The part of the log that is in the remote store, of a topic with remote storage."""
        if keeps_tier or is_tiered(topic_partition.topic, config):
            self.begin_tier()
        self.discards = Discards(self.files, segments)
        self.rolls = Rolls(self.files, segments, producer_state, self.discards)
        self.flushes = Flushes(self.files, segments, producer_state, self.rolls, recovery_point)
        self.truncations = Truncations(self)
        self.reader = BatchReader(segments)
        self.producer_state.state.on_high_watermark(self.high_watermark)
        if self.rules.magic != CURRENT_MAGIC:
            self.forget_epochs()

    # ---- queries

    @property
    def directory(self) -> str:
        """The path of the partition's directory. It changes if the partition moves or is deleted."""
        return self.files.directory

    @property
    def is_closed(self) -> bool:
        """Whether the log refuses all further writes."""
        return self.files.is_closed

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return self.segments.size_bytes

    @property
    def local_log_start_offset(self) -> int:
        """The first offset on this broker: the log start offset, or a later one if older segments are in the remote store only."""
        return max(self.log_start_offset, self.segments.first.base_offset)

    @property
    def is_copied(self) -> bool:
        """Whether closed segments go to the remote store."""
        return is_tiered(self.topic_partition.topic, self.config)

    @property
    def only_local_bytes(self) -> int:
        """Bytes of the segments of which nothing is in the remote store."""
        copied = NO_OFFSET if self.tier is None else self.tier.copied.offset
        return sum(segment.size for segment in self.segments.between(copied, NEVER) if segment.base_offset > copied)

    @property
    def last_stable_offset(self) -> int:
        """Limit for consumers of committed records: every transaction below it has ended and is replicated."""
        first_unstable = self.producer_state.state.first_unstable_offset
        if 0 <= first_unstable < self.high_watermark:
            return max(first_unstable, self.log_start_offset)
        return self.high_watermark

    @property
    def recovery_point(self) -> int:
        """Everything below survives a crash."""
        return self.flushes.recovery_point

    def active_producers(self) -> list[ProducerStateEntry]:
        """The idempotent and transactional producers of this log."""
        return list(self.producer_state.state.producers.values())

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The greatest epoch at or below `epoch` and its end offset; (-1, -1) if unknown (KIP-101, KIP-279)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # ---- offsets, epochs, configuration

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark to `offset`, limited to the offsets of the log. Returns whether it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        producers = self.producer_state.state
        if producers.unreplicated:
            producers.on_high_watermark(offset)
        return True

    def on_new_leader_epoch(self, epoch: int) -> None:
        """Record that this broker leads from the log end offset on. Raises LogDirFailure."""
        try:
            self.assign_epoch(epoch, self.log_end_offset)
        except OSError as error:
            raise self.files.failure(error, self.leader_epochs.path) from error

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`, if that is new. A log of an old format has no epochs."""
        if self.rules.magic != CURRENT_MAGIC:
            return
        self.leader_epochs.assign(epoch, start_offset)
        self.latest_epoch = self.leader_epochs.latest_epoch

    def forget_epochs(self) -> None:
        """Forget all epochs, because messages of an old format know none. Followers then cut their logs at the high watermark.

        Otherwise an epoch before the messages would seem to end where the messages begin.
        """
        if self.latest_epoch is not None:
            log.info("%s: the leader epochs are forgotten, because the log has messages of an old format", self.topic_partition)
            self.leader_epochs.clear()
            self.latest_epoch = None

    def forget_unwritten_epoch(self) -> None:
        """Forget the last epoch if it begins at the log end offset, because its leader never wrote."""
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self.latest_epoch = self.leader_epochs.latest_epoch

    def increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Hide the records below `offset`. Returns whether the log start offset moved. Raises OffsetOutOfRange above the high watermark."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(self.topic_partition, offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        # Unlike in Apache Kafka, the recovery point stays: after a crash the checkpoint may have an older log start offset, below which
        # recovery then begins.
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset_incremented(offset)
        log.info("%s: log start offset is now %d: %s", self.topic_partition, offset, reason)
        self.context.on_log_start_offset(self)
        return True

    def update_config(self, config: TopicConfig) -> None:
        """Use another configuration from the next append on. Existing segments keep the size of their indexes."""
        was_copied = self.is_copied
        self.config = config
        self.rules = rules_for(self.topic_partition, config)
        if self.rules.magic != CURRENT_MAGIC:
            self.forget_epochs()
        settings = LogSettings(config)
        self.segments.use_settings(settings)
        self.flushes.use_settings(settings)
        if was_copied != self.is_copied:
            self.begin_tier()

    def begin_tier(self) -> None:
        """Expect records in the remote store. They are still read when the topic loses its remote storage, so a tier stays."""
        if self.tier is None:
            self.tier = Tier(self.log_end_offset)
        if not self.is_copied:
            log.warning(
                "%s: its topic has no remote.storage.enable any more: what is in the remote store from offset %d on is still read, and "
                "nothing is copied or expires there; enable it again",
                self.topic_partition,
                self.log_start_offset,
            )

    def on_flush_due(self) -> None:
        """Request a flush, because `flush.messages` records were appended since the last request."""
        self.flushes.become_due(self.log_end_offset)
        self.files.request_flush()

    # ---- appending

    def append(self, run: BatchRun, leader_epoch: int, now_ms: int, origin: int) -> None:
        """Append the batches of `run`, with one system call for each segment.

        A producer or a coordinator appends one batch, which was read before. It is judged unless it was accepted before, and gets offset
        and leader epoch. With origin REPLICATION the batches are taken unchanged from the leader. An incomplete last batch is left out.
        Batches of a later epoch than `leader_epoch` are left out, too, because the answer then came from a former leader. So are the last
        ones of very many (MOST_WORK).

        The run reports the offsets, the appended bytes (`size`), whether its batch is in the log already (`is_duplicate`), and whether it
        needs a worker; in both cases nothing is written. Messages for a log of an old format need a worker again if the log has grown
        since they got their offsets. Raises the errors of `judge`, TopicIdNotDurable, CorruptRecord, OffsetsOutOfOrder,
        UnexpectedAppendOffset, RecordBatchTooLarge, OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
        TransactionCoordinatorFenced and LogDirFailure. All of them leave the log unchanged.
        """
        run.log_start_offset = self.log_start_offset
        if origin == REPLICATION:
            end = self._judge_replicated(run, leader_epoch)
        else:
            end = self._judge_led(run, leader_epoch, now_ms, origin)
        at = written = run.start
        if end == at:
            return
        segment = self.segments.active
        next_offset = self.log_end_offset
        try:
            segment.begin_write()
            if run.forgets_epochs:
                self.forget_epochs()
            if run.epochs is not None:
                for epoch, start_offset in run.epochs:
                    self.assign_epoch(epoch, start_offset)
            while at < end:
                if run.at != at:
                    run.read_unit(at)
                last_offset = run.base_offset + run.last_offset_delta
                if segment.should_roll(run.size, last_offset, run.max_timestamp, now_ms):
                    if at > written:
                        self._write(run, segment, written, at, next_offset)
                        written = at
                        run.read_unit(at)
                    # A compressed message knows its last offset only: the segment begins before all that it may hold.
                    segment = self.roll(run.base_offset if run.magic == CURRENT_MAGIC else last_offset - MAX_RELATIVE_OFFSET)
                    segment.begin_write()
                segment.stage(run.size, last_offset, run.max_timestamp, last_offset)
                next_offset = last_offset + 1
                at += run.size
            self._write(run, segment, written, at, next_offset)
        except OSError as error:
            raise self.files.failure(error, segment.path) from error
        except RecordFormatError as error:  # where the age of the segment is read
            raise CorruptRecord(self.topic_partition, f"{segment.path}: {error}") from None
        run.size = end - run.start
        if next_offset > self.flushes.request_offset:
            self.on_flush_due()

    def begin_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, raises_epochs: bool = False
    ) -> VerificationStateEntry | None:
        """Note that the transaction coordinator is about to be asked whether the producer may write to a transaction here. With
        `raises_epochs` the transaction has version 2, and the question adds the partition to it.

        Returns the guard that the append of the batch brings along (`BatchRun.guard`). None if the coordinator is not to be asked: a
        transaction of the producer is open here, or nothing is added and `transaction.partition.verification.enable` is false. In
        version 2 only a transaction of the same epoch counts. Raises InvalidProducerEpoch for an older one. Raises LogBeingTruncated,
        because the producers are unknown until the truncation has ended, and the guard would be lost with its end.
        """
        if self.truncations.current is not None:
            raise LogBeingTruncated(self.topic_partition)
        state = self.producer_state.state
        if raises_epochs:
            state.check_epoch(producer_id, producer_epoch, self.log_end_offset)
            if state.has_open_transaction(producer_id, producer_epoch):
                return None
        elif state.has_open_transaction(producer_id) or not self.context.verifies_transactions():
            return None
        now_ms = self.context.clock.now_ms()
        return begin_verification(state.verifications, producer_id, sequence, producer_epoch, raises_epochs, now_ms)

    def _judge_led(self, run: BatchRun, leader_epoch: int, now_ms: int, origin: int) -> int:
        """Judge and stamp the batch of a producer or a coordinator. Returns the end of the bytes to be written."""
        if not run.is_accepted:
            judge(run, self.rules, now_ms, origin == CLIENT)
            if not run.is_accepted:
                return run.start  # it needs a worker, or holds nothing
        if self.pending_topic_id is not None:
            self.pending_topic_id.hold_back(run, origin)
            return run.start
        if run.magic != CURRENT_MAGIC:
            return self._judge_messages(run)
        if run.takes_log_append_time:
            run.accept(now_ms)  # a worker has had the batch, and others were appended meanwhile
        first_offset = self.log_end_offset
        run.has_producers = run.producer_id >= 0
        if run.has_producers and self.truncations.current is not None:
            raise LogBeingTruncated(self.topic_partition)  # its producers are unknown until the truncation has ended
        if run.has_producers and self._is_duplicate(run, first_offset, origin):
            return run.start
        check_fits_segment(run.size, self.segments.settings.segment_bytes, self.rules)
        run.epochs = [(leader_epoch, first_offset)] if leader_epoch != self.latest_epoch else None
        run.stamp(first_offset, leader_epoch)
        run.first_offset = first_offset
        run.last_offset = first_offset + run.last_offset_delta
        return run.start + run.size

    def _judge_messages(self, run: BatchRun) -> int:
        """Check that accepted messages continue the log. Returns the end of the bytes to be written."""
        if run.first_offset != self.log_end_offset:
            run.is_accepted = False
            run.needs_worker = True
            return run.start
        check_fits_segment(run.end - run.start, self.segments.settings.segment_bytes, self.rules)
        run.has_producers = False
        run.epochs = None
        run.forgets_epochs = True
        return run.end

    def _is_duplicate(self, run: BatchRun, first_offset: int, origin: int) -> bool:
        """Whether the batch is in the log already; then the run gets its offsets. Raises the errors of ProducerState's checks."""
        state = self.producer_state.state
        if run.attributes & CONTROL_MASK:
            marker = run.marker
            if marker is None:
                marker = run.marker = read_marker(run.frame, run.at, run.header())
            if marker is not None:
                state.check_marker(run.producer_id, run.producer_epoch, marker.coordinator_epoch, first_offset, run.raises_epoch)
                return False
        is_transactional = run.attributes & TRANSACTIONAL_MASK != 0
        begins_transaction = is_transactional and not state.has_open_transaction(run.producer_id)
        must_be_verified = begins_transaction and self.context.verifies_transactions()
        if origin != CLIENT:
            if must_be_verified:
                state.check_verified(run.producer_id, run.producer_epoch, run.guard, first_offset)
            state.check_coordinator_append(run.producer_id, run.producer_epoch, is_transactional, first_offset)
            return False
        last_sequence = (run.base_sequence + run.last_offset_delta) % SEQUENCES
        if must_be_verified and state.duplicate_of(run.producer_id, run.producer_epoch, run.base_sequence, last_sequence) is None:
            state.check_verified(run.producer_id, run.producer_epoch, run.guard, first_offset)
        found = state.check_append(run.producer_id, run.producer_epoch, run.base_sequence, last_sequence, is_transactional, first_offset)
        if found is None:
            if begins_transaction:
                state.check_first(run.producer_id, run.base_sequence, first_offset)
            return False
        run.is_duplicate = True
        run.first_offset, run.last_offset, run.log_append_time_ms = found.first_offset, found.last_offset, found.timestamp
        return True

    def _judge_replicated(self, run: BatchRun, leader_epoch: int) -> int:
        """Check the batches that the leader sent, and that they continue the log. Returns the end of the bytes to be written."""
        if self.pending_topic_id is not None:
            self.pending_topic_id.hold_back(run, REPLICATION)
        end = judge_replicated(run, self.rules, leader_epoch, self.latest_epoch, self.segments.settings.segment_bytes)
        log_end_offset = self.log_end_offset
        if end == run.start:
            run.first_offset, run.last_offset = log_end_offset, log_end_offset - 1
        elif run.first_offset < log_end_offset:
            raise UnexpectedAppendOffset(self.topic_partition, run.first_offset, run.last_offset, log_end_offset)
        return end

    def _write(self, run: BatchRun, segment: Segment, start: int, end: int, next_offset: int) -> None:
        """Write the staged batches in `start:end` and update the producer state. The log then ends at `next_offset`."""
        segment.write(run.frame[start:end])
        self.log_end_offset = next_offset
        if segment.size >= segment.reserve_at:
            self.context.reserve(self)
        has_markers = False
        while run.has_producers and start < end:
            if run.at != start:
                run.read(start)
            if run.producer_id >= 0:
                self._take_producer(run, segment)
                if run.attributes & CONTROL_MASK:
                    has_markers = True
            start += run.size
        if has_markers:
            try:
                segment.write_out_transactions()
            except OSError as error:
                raise self.files.failure(error, segment.transaction_index.path) from error

    def _take_producer(self, run: BatchRun, segment: Segment) -> None:
        """Update the producer state with the run's current batch, which was written. Raises LogDirFailure.

        An aborted transaction is added to the segment's index, which the caller writes.
        """
        state = self.producer_state.state
        if run.attributes & CONTROL_MASK:
            header = run.header()
            marker = read_marker(run.frame, run.at, header) if run.marker is None else run.marker
            try:
                replay_producer(state, segment, header, marker, run.base_offset)
            except OSError as error:  # where the index is read for the first time
                raise self.files.failure(error, segment.transaction_index.path) from error
            return
        sequence = run.base_sequence
        state.on_append(
            run.producer_id,
            run.producer_epoch,
            sequence if sequence == NO_SEQUENCE else (sequence + run.last_offset_delta) % SEQUENCES,
            run.base_offset,
            run.base_offset + run.last_offset_delta,
            run.max_timestamp,
            run.attributes & TRANSACTIONAL_MASK != 0,
        )

    # ---- rolling

    def roll(self, expected_next_offset: int = 0) -> Segment:
        """End the active segment and begin one at the log end offset, or at `expected_next_offset` if higher. May raise OSError."""
        return self.rolls.begin(max(expected_next_offset, self.log_end_offset), self.flushes.recovery_point)

    # ---- reading

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, may_wait: bool = True) -> FetchSlice:
        """Whole batches below `end_offset`, from the one that holds `offset` on, at most `max_bytes`.

        With `min_one_batch` the first one may be larger. The result may begin with records before `offset`. Raises OffsetOutOfRange,
        OffsetMovedToTieredStorage, CorruptRecord, LogDirFailure; and ColdRead when the search would wait for the disk, unless it
        `may_wait`.
        """
        self.check_offset(offset)
        log_end_offset = self.log_end_offset
        end_offset = end_offset if end_offset < log_end_offset else log_end_offset
        if offset >= end_offset:
            return FetchSlice(None, offset)
        try:
            found = self.reader.find(self.segments.active, log_end_offset, offset, max_bytes, end_offset, min_one_batch, may_wait)
        except LOOKUP_ERRORS as error:
            raise self.files.failed_lookup(error, f"at offset {offset}: ") from error
        if found.region is None and not self.is_closed and offset < self.segments.first.base_offset:
            raise OffsetMovedToTieredStorage(self.topic_partition, offset, self.segments.first.base_offset)
        return found

    def check_offset(self, offset: int) -> None:
        """Check that the log has the offset, or ends there. Raises OffsetOutOfRange."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(self.topic_partition, offset, self.log_start_offset, self.log_end_offset)

    def flush(self) -> None:
        """Make everything durable, for shutdown and for callers that may block. Raises LogDirFailure."""
        self.flushes.run(self.log_end_offset)

    # ---- truncating

    def begins_inside_batch(self, unexpected: UnexpectedAppendOffset) -> bool:
        """Whether the log is empty and begins inside the rejected batch, as a leader's log may after DeleteRecords.

        Then the log must be truncated to `unexpected.first_offset`, so that it begins with that batch.
        """
        end_offset = self.log_end_offset
        return self.log_start_offset == end_offset and unexpected.first_offset < end_offset <= unexpected.last_offset

    def end_at(self, begun: Truncation, base_offset: int, size: int) -> None:
        """End where the truncation `begun` ends the log, although a thread has not done it yet.

        Until `reopen` a segment from `base_offset` on, of `size` bytes, stands for the last one. It refuses reads and appends.
        """
        context = self.context
        end_offset = begun.end_offset
        for each in begun.gone:
            self.segments.remove(each)
        self.segments.hints.clear()
        self.segments.add(
            SegmentBeingTruncated(self.topic_partition, context.filesystem, self.directory, base_offset, size, self.segments.settings)
        )
        # It is never queried, because reads and appends are refused before.
        self.producer_state = ProducerStateManager(
            self.topic_partition, self.directory, context.producer_id_expiration_ms, context.filesystem, ()
        )
        self.log_start_offset = begun.log_start_offset
        self.log_end_offset = end_offset
        self.latest_epoch = self.leader_epochs.latest_epoch
        self.flushes.truncate(end_offset)
        high_watermark = end_offset if begun.is_full else min(self.high_watermark, end_offset)
        self.high_watermark = max(high_watermark, self.log_start_offset)
        if self.tier is not None:
            self.tier.on_truncated(end_offset)
        context.on_truncated(self)

    def reopen(self, segment: Segment, producers: ProducerStateManager) -> None:
        """Append to and read `segment` again, the last one, after a truncation. `producers` are those that it has left."""
        segment.update_settings(self.segments.settings)
        self.segments.add(segment)
        producers.producer_id_expiration_ms = self.producer_state.producer_id_expiration_ms
        self.producer_state = producers
        producers.state.on_high_watermark(self.high_watermark)

    # ---- removing segments

    def delete_old_segments(
        self, should_delete: ShouldDelete, reason: str, at_most: int = NO_LIMIT, *, keeps_log_start: bool = False
    ) -> int:
        """Delete segments from the oldest on, while `should_delete(segment, next)` and the high watermark is beyond the segment.

        Deletes at most `at_most`. If the active segment is deleted, too, an empty one follows. Moves the log start offset, unless
        `keeps_log_start` because the remote store has the records. Deletes none while a thread writes a snapshot of producers, which may
        soon be the only trace of them. Returns the number of deleted segments; raises LogDirFailure.
        """
        if self._waits_for_snapshot():
            return 0
        segments = list(self.segments)
        deletable = []
        for at, segment in enumerate(segments[:at_most]):
            following = segments[at + 1] if at + 1 < len(segments) else None
            if following is None and segment.size == 0:
                break
            upper_bound = self.log_end_offset if following is None else following.base_offset
            if self.high_watermark < upper_bound or not should_delete(segment, following):
                break
            deletable.append(segment)
        if not deletable:
            return 0
        try:
            self.rolls.finish()
            if len(deletable) == len(segments):
                self.roll()
                self.rolls.finish()
                if self._waits_for_snapshot():
                    return 0
            bases = ", ".join(str(segment.base_offset) for segment in deletable)
            log.info("%s: segments %s are deleted: %s", self.topic_partition, bases, reason)
            left = self.segments.higher(deletable[-1].base_offset)
            if left is not None and not keeps_log_start:
                self.increment_log_start_offset(left.base_offset, "segment deletion")
            self.discards.discard(deletable, self.producer_state)
        except OSError as error:
            raise self.files.failure(error) from error
        return len(deletable)

    def _waits_for_snapshot(self) -> bool:
        producers = self.producer_state
        return producers.writing is not None or self.flushes.recovery_point < producers.unsafe_below

    def replace_segments(self, base_offset: int, old: Sequence[Segment], then: OnReplaced = ignore_result) -> Swap:
        """Replace the segments `old` by the cleaned segment in the files `<base_offset>.*.cleaned`, which are durable.

        From the return on, readers find the cleaned segment. A thread renames the files and makes the names durable. Then `then` is
        called on the loop, with the error or None. Raises LogDirFailure, with everything unchanged.
        """
        current = set(self.segments)
        try:
            self.rolls.finish()
            return self.discards.swap(base_offset, [segment for segment in old if segment in current], self.producer_state, then)
        except OSError as error:
            raise self.files.failure(error) from error

    # ---- moving, closing

    def move_to(self, directory: str) -> None:
        """Rename the partition's directory to `directory`, to take another log's place. Raises LogDirFailure."""
        try:
            self.files.small_files.move_to(directory)
        except OSError as error:
            raise self.files.failure(error) from error
        self.moved_to(directory)

    def moved_to(self, directory: str) -> None:
        """Use `directory`, to which the partition's directory was renamed."""
        self.files.directory = directory
        self.producer_state.directory = directory
        self.leader_epochs.directory = directory
        for segment in self.segments:
            segment.move_to(directory)

    def close(self, *, sync: bool = True) -> None:
        """Leave the directory as after a clean shutdown: indexes complete and trimmed, producers in a snapshot. Raises LogDirFailure.

        A start after a clean shutdown assumes that everything is durable. So the caller flushes before; or, without `sync`, syncs
        everything afterwards.
        """
        if self.is_closed:
            return
        try:
            self.rolls.finish()
            self.discards.finish()
            self.leader_epochs.flush()
            self.producer_state.map_end_offset = self.log_end_offset
            self.producer_state.take_snapshot(sync=sync)
            for segment in self.segments:
                segment.close()
        except OSError as error:
            raise self.files.failure(error) from error
        finally:
            self.refuse_appends()

    def close_without_writing(self) -> None:
        """Release all files, because the disk has failed or the log will be deleted."""
        self.refuse_appends()
        for segment in self.segments:
            segment.close_without_writing()

    def refuse_appends(self) -> None:
        """Refuse all further writes. Open files stay open."""
        self.files.is_closed = True
        self.rolls.unfinished.clear()
        self.segments.refuse_appends(self.topic_partition, self.log_end_offset)
