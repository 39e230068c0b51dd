"""Implements the log of one replica, which `replication` appends to, reads, truncates and queries.

Owns the segments of a partition's directory, its producer state and leader epochs, and the offsets that limit it. `recovery.open_log`
creates it. It is called only on the event loop. This module appends. A read returns a region of a segment's file, which `BatchReader`
finds. `FlushProgress` knows what is on the disk. The rarer operations are in `roll`, `flush`, `truncation`, `deletion` and
`time_lookups`. Their long work is done in a thread by separate objects: `FlushPlan`, `Truncation`, and `Discard` or `Swap` of segments.

Invariants: log_start_offset <= high_watermark <= log_end_offset; the last segment is the active one and begins at or below the log end
offset. An OSError becomes a `LogDirFailure`, after which the log directory must be taken offline.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress

from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import CONTROL_MASK, CURRENT_MAGIC, NO_SEQUENCE, TRANSACTIONAL_MASK
from ottla.protocol.records.builder import read_marker
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.leader_epochs import LeaderEpochCache
from ottla.storage.disk.partition_metadata import ZERO_UUID
from ottla.storage.disk.small_files import SmallFiles
from ottla.storage.errors import (
    CorruptRecord,
    LogBeingTruncated,
    LogClosed,
    LogDirFailure,
    OffsetOutOfRange,
    UnexpectedAppendOffset,
)
from ottla.storage.log import deletion, flush, roll, time_lookups, truncation
from ottla.storage.log.batch_reader import BatchReader
from ottla.storage.log.context import LogContext
from ottla.storage.log.deletion import NO_LIMIT, OnReplaced, ShouldDelete, ignore_result
from ottla.storage.log.flush import FlushPlan
from ottla.storage.log.flush_progress import FlushProgress
from ottla.storage.log.origins import CLIENT, REPLICATION
from ottla.storage.log.producer_replay import replay_producer
from ottla.storage.log.reads import FetchSlice, OffsetAndTimestamp
from ottla.storage.log.truncation import OnTruncated, Truncation
from ottla.storage.producers.limits import SEQUENCES
from ottla.storage.producers.state import ProducerStateEntry
from ottla.storage.producers.state_manager import ProducerStateManager
from ottla.storage.producers.verification import VerificationStateEntry, begin_verification
from ottla.storage.segment.closed_segment import ClosedSegment
from ottla.storage.segment.cold_lookups import LOOKUP_ERRORS, ColdRead, NotCached
from ottla.storage.segment.discards import Discard
from ottla.storage.segment.limits import MAX_RELATIVE_OFFSET, NEVER
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.log_settings import LogSettings, rules_for
from ottla.storage.segment.record_search import FoundRecords
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.swaps import Swap
from ottla.storage.segment.transaction_index import AbortedTransaction
from ottla.storage.segment.truncated_segment import SegmentBeingTruncated
from ottla.storage.validation.batch import check_fits_segment, judge
from ottla.storage.validation.replicated import judge_replicated
from ottla.storage.validation.run import BatchRun

log = logging.getLogger(__name__)


class PartitionLog:
    """A partition's log on this broker."""

    __slots__ = (
        "active_segment",
        "config",
        "context",
        "directory",
        "discards",
        "flushes",
        "high_watermark",
        "is_closed",
        "latest_epoch",
        "leader_epochs",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "producer_state",
        "reader",
        "rules",
        "segments",
        "settings",
        "small_files",
        "topic_id",
        "topic_partition",
        "truncation",
        "unfinished_rolls",
    )

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        log_dir: str,
        directory: str,
        config: TopicConfig,
        settings: LogSettings,
        *,
        segments: LogSegments,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.context = context
        self.topic_partition = topic_partition
        self.topic_id = ZERO_UUID
        self.log_dir = log_dir
        self.directory = directory
        self.small_files = SmallFiles(context.filesystem, directory)
        self.config = config
        self.settings = settings
        self.rules = rules_for(topic_partition, config)
        self.segments = segments
        self.active_segment = segments.active
        self.producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.latest_epoch = leader_epochs.latest_epoch
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.flushes = FlushProgress(recovery_point, settings)
        self.reader = BatchReader(segments)
        self.is_closed = False
        self.truncation: Truncation | None = None
        """The truncation in progress. Meanwhile nothing is appended, and nothing is read of the segment being cut."""
        self.discards: list[Discard] = []
        """Segments whose files a thread is renaming."""
        self.unfinished_rolls: list[roll.Roll] = []  # a deque takes 0.6 KB, and would be empty in most logs
        self.producer_state.state.on_high_watermark(self.high_watermark)
        if self.rules.magic != CURRENT_MAGIC:
            self.forget_epochs()

    # ---- queries

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return self.segments.size_bytes

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
            raise self.disk_failure(self.leader_epochs.path, error) from error

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
        self.config = config
        self.settings = LogSettings(config)
        self.rules = rules_for(self.topic_partition, config)
        if self.rules.magic != CURRENT_MAGIC:
            self.forget_epochs()
        self.flushes.use_settings(self.settings)
        for segment in self.segments:
            segment.update_settings(self.settings)

    def on_flush_due(self) -> None:
        """Request a flush, because `flush.messages` records were appended since the last request."""
        self.flushes.become_due(self.log_end_offset)
        self.context.on_flush_due(self)

    # ---- appending

    def append(self, run: BatchRun, leader_epoch: int, now_ms: int, origin: int) -> None:
        """Append the batches of `run`, with one system call for each segment.

        A producer or a coordinator appends one batch, which was read before. It is judged unless it was accepted before, and gets offset
        and leader epoch. With origin REPLICATION the batches are taken unchanged from the leader. An incomplete last batch is left out.
        Batches of a later epoch than `leader_epoch` are left out, too, because the answer then came from a former leader. So are the last
        ones of very many (MOST_WORK).

        The run reports the offsets, the appended bytes (`size`), whether its batch is in the log already (`is_duplicate`), and whether it
        needs a worker; in both cases nothing is written. Messages for a log of an old format need a worker again if the log has grown
        since they got their offsets. Raises the errors of `judge`, CorruptRecord, OffsetsOutOfOrder, UnexpectedAppendOffset,
        RecordBatchTooLarge, OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced and LogDirFailure. All
        of them leave the log unchanged.
        """
        run.log_start_offset = self.log_start_offset
        if origin == REPLICATION:
            end = self._judge_replicated(run, leader_epoch)
        else:
            end = self._judge_led(run, leader_epoch, now_ms, origin)
        at = written = run.start
        if end == at:
            return
        segment = self.active_segment
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
            raise self.disk_failure(segment.path, error) from error
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
        if self.truncation is not None:
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
        if run.magic != CURRENT_MAGIC:
            return self._judge_messages(run)
        first_offset = self.log_end_offset
        run.has_producers = run.producer_id >= 0
        if run.has_producers and self._is_duplicate(run, first_offset, origin):
            return run.start
        check_fits_segment(run.size, self.settings.segment_bytes, self.rules)
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
        check_fits_segment(run.end - run.start, self.settings.segment_bytes, self.rules)
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
        end = judge_replicated(run, self.rules, leader_epoch, self.latest_epoch, self.settings.segment_bytes)
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
                raise self.disk_failure(segment.transaction_index.path, error) from error

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
                raise self.disk_failure(segment.transaction_index.path, error) from error
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
        return roll.begin(self, expected_next_offset)

    def complete_roll(self) -> None:
        """Complete the oldest roll, if it is still incomplete, and request a flush. May raise OSError."""
        roll.complete(self)

    def finish_rolls(self) -> None:
        """Complete all rolls. May raise OSError."""
        roll.finish_all(self)

    # ---- reading

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, may_wait: bool = True) -> FetchSlice:
        """Whole batches below `end_offset`, from the one that holds `offset` on, at most `max_bytes`.

        With `min_one_batch` the first one may be larger. The result may begin with records before `offset`. Raises OffsetOutOfRange,
        CorruptRecord, LogDirFailure; and ColdRead when the search would wait for the disk, unless it `may_wait`.
        """
        self.check_offset(offset)
        log_end_offset = self.log_end_offset
        end_offset = end_offset if end_offset < log_end_offset else log_end_offset
        if offset >= end_offset:
            return FetchSlice(None, offset)
        try:
            return self.reader.find(self.active_segment, log_end_offset, offset, max_bytes, end_offset, min_one_batch, may_wait)
        except LOOKUP_ERRORS as error:
            raise self.failed_lookup(error, f"at offset {offset}: ") from error

    def check_offset(self, offset: int) -> None:
        """Check that the log has the offset, or ends there. Raises OffsetOutOfRange."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(self.topic_partition, offset, self.log_start_offset, self.log_end_offset)

    def offset_for_timestamp(
        self, timestamp_ms: int, may_wait: bool = True, found: FoundRecords | None = None
    ) -> OffsetAndTimestamp | None:
        """The first record with a timestamp of at least `timestamp_ms`; None if there is none. Reads the disk, decompresses one batch.

        Raises CorruptRecord, LogDirFailure; ColdRead unless it `may_wait` for the disk, and, with `found`, for a large batch. Its `warm`
        puts the result into `found`, for the repeated search.
        """
        return time_lookups.offset_for_timestamp(self, timestamp_ms, may_wait, found)

    def offset_of_max_timestamp(self, may_wait: bool = True, found: FoundRecords | None = None) -> OffsetAndTimestamp | None:
        """The first record with the largest timestamp of the log; None if no record has a timestamp. Reads the disk, decompresses one
        batch.

        Raises as `offset_for_timestamp` does.
        """
        return time_lookups.offset_of_max_timestamp(self, may_wait, found)

    def begins_up_to(self, timestamp_ms: int, may_wait: bool = True) -> list[int]:
        """The first offsets of the segments without a record after `timestamp_ms`. Reads the disk. Raises as `offset_for_timestamp`."""
        return time_lookups.begins_up_to(self, timestamp_ms, may_wait)

    def aborted_transactions(self, start: int, end: int, may_wait: bool = True) -> list[AbortedTransaction]:
        """The aborted transactions with records in `[start, end)`, for a read-committed fetch of that range.

        Raises LogDirFailure; ColdRead unless it `may_wait` for the disk.
        """
        found: list[AbortedTransaction] = []
        try:
            for segment in self.segments.between(start, NEVER):
                index = segment.transaction_index
                if not index.exists():
                    continue  # mostly, and there may be thousands of segments up to the end
                if not may_wait and segment is not self.active_segment:
                    index.check_cached()
                some, is_complete = index.collect(start, end)
                found += some
                if is_complete:
                    break
        except LOOKUP_ERRORS as error:
            raise self.failed_lookup(error) from error
        return found

    def failed_lookup(self, error: NotCached | OSError | RecordFormatError, where: str = "") -> ColdRead | LogDirFailure | CorruptRecord:
        """The error to raise for one of `LOOKUP_ERRORS`. Raises LogClosed for a closed log."""
        if isinstance(error, NotCached):
            return ColdRead(self.topic_partition, error)
        if isinstance(error, OSError):
            return self.disk_failure(self.directory, error)
        return CorruptRecord(self.topic_partition, f"{where}{error}")

    # ---- making durable

    def complete_up_to(self) -> int:
        """The end of the segments whose rolls are complete, or of the first `SEGMENTS_AT_ONCE` that are not flushed."""
        return flush.complete_up_to(self)

    def prepare_flush(self, up_to: int | None = None) -> FlushPlan | None:
        """A plan for the flush after which everything below `up_to` (default: the log end offset) survives a crash; None if there is none.

        Raises LogDirFailure.
        """
        return flush.prepare(self, up_to)

    def finish_flush(self, plan: FlushPlan) -> None:
        """Report the duration of a plan that has run, and move the recovery point (`FlushProgress.finish`)."""
        self.context.on_flushed(plan.seconds)
        self.flushes.finish(plan)

    def flush(self) -> None:
        """Do all three steps of a flush, for shutdown and for callers that may block. Raises LogDirFailure."""
        flush.run(self)

    # ---- truncating

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that ends at or after `offset`. Returns False if there was none. Blocks.

        Raises LogDirFailure, LogClosed, LogBeingTruncated.
        """
        return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything, so that the log is empty and begins at `offset`. Blocks. Raises as `truncate_to` does."""
        truncation.truncate_fully_and_start_at(self, offset)

    def truncate_in_thread(self, offset: int, then: OnTruncated) -> None:
        """As `truncate_to`, but without blocking. `then` is called on the loop, with the error or None, when the log is usable again.

        A truncation that is requested during another one follows it.
        """
        truncation.truncate_in_thread(self, offset, then)

    def truncate_fully_in_thread(self, offset: int, then: OnTruncated) -> None:
        """As `truncate_fully_and_start_at`, without blocking, as `truncate_in_thread`."""
        truncation.truncate_fully_in_thread(self, offset, then)

    def finish_truncations(self) -> None:
        """Wait until no truncation is in progress. Blocks; for the time after the loop has stopped. Raises LogDirFailure."""
        truncation.finish_truncations(self)

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
        self.truncation = begun
        self.reader.hints.clear()
        for each in begun.gone:
            self.segments.remove(each)
        self.active_segment = SegmentBeingTruncated(
            self.topic_partition, context.filesystem, self.directory, base_offset, size, self.settings
        )
        self.segments.add(self.active_segment)
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
        context.on_truncated(self)

    def reopen(self, segment: Segment, producers: ProducerStateManager) -> None:
        """Append to and read `segment` again, the last one, after a truncation. `producers` are those that it has left."""
        segment.update_settings(self.settings)
        self.segments.add(segment)
        self.active_segment = segment
        producers.producer_id_expiration_ms = self.producer_state.producer_id_expiration_ms
        self.producer_state = producers
        producers.state.on_high_watermark(self.high_watermark)

    # ---- removing segments

    def delete_old_segments(self, should_delete: ShouldDelete, reason: str, at_most: int = NO_LIMIT) -> int:
        """Delete segments from the oldest on, while `should_delete(segment, next)` and the high watermark is beyond the segment.

        Deletes at most `at_most`. If the active segment is deleted, too, an empty one follows. Moves the log start offset. Returns the
        number of deleted segments; raises LogDirFailure.
        """
        return deletion.delete_old_segments(self, should_delete, reason, at_most)

    def replace_segments(self, base_offset: int, old: Sequence[Segment], then: OnReplaced = ignore_result) -> Swap:
        """Replace the segments `old` by the cleaned segment in the files `<base_offset>.*.cleaned`, which are durable.

        From the return on, readers find the cleaned segment. A thread renames the files and makes the names durable. Then `then` is
        called on the loop, with the error or None. Raises LogDirFailure, with everything unchanged.
        """
        return deletion.replace_segments(self, base_offset, old, then)

    # ---- moving, closing, deleting

    def move_to(self, directory: str) -> None:
        """Rename the partition's directory to `directory`, to take another log's place. Raises LogDirFailure."""
        try:
            self.small_files.move_to(directory)
        except OSError as error:
            raise self.disk_failure(self.directory, error) from error
        self.moved_to(directory)

    def moved_to(self, directory: str) -> None:
        """Use `directory`, to which the partition's directory was renamed."""
        self.directory = directory
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
            self.finish_rolls()
            deletion.finish_discards(self)
            self.leader_epochs.flush()
            self.producer_state.map_end_offset = self.log_end_offset
            self.producer_state.take_snapshot(sync=sync)
            for segment in self.segments:
                segment.close()
        except OSError as error:
            raise self.disk_failure(self.directory, error) from error
        finally:
            self.refuse_appends()

    def close_without_writing(self) -> None:
        """Release all files, because the disk has failed or the log will be deleted."""
        self.refuse_appends()
        for segment in self.segments:
            segment.close_without_writing()

    def refuse_appends(self) -> None:
        """Refuse all further writes. Open files stay open."""
        self.is_closed = True
        self.unfinished_rolls.clear()
        self.reader.hints.clear()
        self.active_segment = ClosedSegment(self.topic_partition, self.log_end_offset)

    def disk_failure(self, path: str, error: OSError) -> LogDirFailure:
        """The error to raise for `error`. Raises LogClosed for a closed log, whose files may be missing without a failure."""
        if self.is_closed:
            raise LogClosed(self.topic_partition) from error
        return LogDirFailure(self.log_dir, str(error.filename or path), error.strerror or str(error))

    def delete(self) -> None:
        """Delete the directory of a closed log and everything in it. Blocks; raises LogDirFailure."""
        self.small_files.forget()
        filesystem = self.context.filesystem
        try:
            for name in filesystem.list_directory(self.directory):
                with suppress(FileNotFoundError):  # a thread may be deleting a file of a removed segment
                    filesystem.unlink(f"{self.directory}/{name}")
            filesystem.remove_directory(self.directory)
            filesystem.sync_directory(self.log_dir)
        except OSError as error:
            raise LogDirFailure(self.log_dir, self.directory, error.strerror or str(error)) from error
        log.debug("%s: deleted %s", self.topic_partition, self.directory)
