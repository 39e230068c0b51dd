"""The log of one replica: what `replication` appends to, reads from, truncates and asks about.

Owns the segments of a partition's directory, its producer state and leader epochs, and the offsets that bound it. Made by
`recovery.open_log`; called on the event loop only. The methods stand in `log_append`, `log_read`, `log_flush`, `log_truncation` and
`log_deletion` by subject; what is here holds them together.

Invariants: log_start_offset <= high_watermark <= log_end_offset; recovery_point <= log_end_offset; the last segment is the active one
and begins at or below the log end offset. An OSError becomes a `LogDirFailure`: its log directory is to be taken offline.
"""

import logging
from typing import TYPE_CHECKING

from config.topic import TopicConfig
from protocol.compiled import compiled
from storage.disk.leader_epochs import LeaderEpochCache
from storage.disk.partition_metadata import ZERO_UUID
from storage.disk.real_file import RealFile
from storage.disk.small_files import SmallFiles
from storage.disk.topic_partition import TopicPartition
from storage.errors import LogClosed, LogDirFailure, OffsetOutOfRange
from storage.log import append as log_append
from storage.log import deletion as log_deletion
from storage.log import flush as log_flush
from storage.log import plain_append
from storage.log import read as log_read
from storage.log import roll as log_roll
from storage.log import truncation as log_truncation
from storage.log.context import LogContext
from storage.log.flush import FlushPlan
from storage.producers.state import ProducerStateEntry
from storage.producers.state_manager import ProducerStateManager
from storage.segment.closed_segment import ClosedSegment
from storage.segment.discards import Discard
from storage.segment.index_file import TAIL_BYTES
from storage.segment.log_segments import LogSegments
from storage.segment.log_settings import LogSettings, rules_for
from storage.segment.offset_index import OffsetIndex
from storage.segment.segment import Segment
from storage.segment.time_index import TimeIndex, timestamp_offset
from storage.validation.rules import ValidationRules

log = logging.getLogger(__name__)


class PartitionLog:
    """A partition's log on this broker."""

    __slots__ = (
        "active_segment",
        "config",
        "context",
        "directory",
        "discards",
        "flush_due_offset",
        "flushes",
        "high_watermark",
        "is_closed",
        "latest_epoch",
        "leader_epochs",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "next_flush_offset",
        "producer_state",
        "read_hints",
        "recovery_point",
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
        self.recovery_point = recovery_point
        self.next_flush_offset = self.recovery_point + settings.flush_messages - 1
        self.flush_due_offset = 0
        """What is below it was appended when `flush.messages` was reached, and is not acknowledged before it is on the disk."""
        self.read_hints: dict[int, tuple[Segment, int]] = {}
        self.is_closed = False
        self.truncation: log_truncation.Truncation | None = None
        """The one that a thread is at: meanwhile nothing is appended, and nothing read of the segment that is cut."""
        self.flushes: list[FlushPlan] = []  # under way: a truncation takes from them what was appended after it
        self.discards: list[Discard] = []
        """What a thread takes out of sight."""
        self.unfinished_rolls: list[log_roll.Roll] = []  # a deque takes 0.6 KB, and of most logs it would be empty
        self.producer_state.state.on_high_watermark(self.high_watermark)

    append_plain = plain_append.append_plain
    append_several_plain = plain_append.append_several_plain
    append_as_leader = log_append.append_as_leader
    append_as_follower = log_append.append_as_follower
    roll = log_roll.roll
    complete_roll = log_roll.complete_roll
    finish_rolls = log_roll.finish_rolls
    read = log_read.read
    offset_for_timestamp = log_read.offset_for_timestamp
    offset_of_max_timestamp = log_read.offset_of_max_timestamp
    aborted_transactions = log_read.aborted_transactions
    complete_up_to = log_flush.complete_up_to
    prepare_flush = log_flush.prepare_flush
    finish_flush = log_flush.finish_flush
    give_up_flush = log_flush.give_up_flush
    flush = log_flush.flush
    truncate_to = log_truncation.truncate_to
    truncate_fully_and_start_at = log_truncation.truncate_fully_and_start_at
    truncate_in_thread = log_truncation.truncate_in_thread
    truncate_fully_in_thread = log_truncation.truncate_fully_in_thread
    begins_inside_batch = log_truncation.begins_inside_batch
    finish_truncations = log_truncation.finish_truncations
    delete_old_segments = log_deletion.delete_old_segments
    finish_discards = log_deletion.finish_discards
    replace_segments = log_deletion.replace_segments
    delete = log_deletion.delete

    # ---- what it knows

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return self.segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided and replicated: read-committed consumers see no further."""
        first_unstable = self.producer_state.state.first_unstable_offset
        if 0 <= first_unstable < self.high_watermark:
            return max(first_unstable, self.log_start_offset)
        return self.high_watermark

    def active_producers(self) -> list[ProducerStateEntry]:
        """The idempotent and transactional producers known here."""
        return list(self.producer_state.state.producers.values())

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The greatest epoch at or below `epoch` and where it ended; (-1, -1) if that cannot be told (KIP-101, KIP-279)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # ---- what moves it

    def update_high_watermark(self, offset: int) -> bool:
        """Moves the high watermark to `offset`, or as near as the log goes; True if it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.producer_state.state.on_high_watermark(offset)
        return True

    def commit_all(self) -> None:
        """No other replica is waited for: moves the high watermark to the log end offset."""
        self.high_watermark = end_offset = self.log_end_offset
        producers = self.producer_state.state
        if producers.unreplicated:
            producers.on_high_watermark(end_offset)

    def on_new_leader_epoch(self, epoch: int) -> None:
        """This broker leads from the log end offset on. Raises LogDirFailure."""
        try:
            self.assign_epoch(epoch, self.log_end_offset)
        except OSError as error:
            raise self.disk_failure(self.leader_epochs.path, error) from error

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`, if that is news."""
        self.leader_epochs.assign(epoch, start_offset)
        self.latest_epoch = self.leader_epochs.latest_epoch

    def increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Hides what is below `offset`; True if that is more than before. Raises OffsetOutOfRange above the high watermark."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(self.topic_partition, offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        # The recovery point stays, unlike Apache Kafka's: a crash may find an older log start offset, and recovery then begins below it.
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset_incremented(offset)
        log.info("%s: log start offset is %d now: %s", self.topic_partition, offset, reason)
        self.context.on_log_start_offset(self)
        return True

    def update_config(self, config: TopicConfig) -> None:
        """Takes effect with the next append; a segment keeps the size of its indexes."""
        self.config = config
        self.settings = LogSettings(config)
        self.rules = rules_for(self.topic_partition, config)
        self.next_flush_offset = self.recovery_point + self.settings.flush_messages - 1
        for segment in self.segments:
            segment.update_settings(self.settings)

    def on_flush_due(self) -> None:
        """`flush.messages` were appended since the last flush was asked for."""
        self.flush_due_offset = self.log_end_offset
        self.next_flush_offset = self.log_end_offset + self.settings.flush_messages - 1
        self.context.on_flush_due(self)

    # ---- the end

    def move_to(self, directory: str) -> None:
        """The partition's directory is renamed to `directory`, for it takes a log's place. Raises LogDirFailure."""
        try:
            self.small_files.move_to(directory)
        except OSError as error:
            raise self.disk_failure(self.directory, error) from error
        self.moved_to(directory)

    def moved_to(self, directory: str) -> None:
        """The partition's directory has been renamed to `directory`."""
        self.directory = directory
        self.producer_state.directory = directory
        self.leader_epochs.directory = directory
        for segment in self.segments:
            segment.move_to(directory)

    def close(self, *, sync: bool = True) -> None:
        """Leaves the directory as a clean shutdown does: indexes complete and trimmed, producers in a snapshot. Raises LogDirFailure.

        After a clean shutdown everything is taken to be durable: a flush comes first; or, without `sync`, the caller syncs all afterwards.
        """
        if self.is_closed:
            return
        try:
            self.finish_rolls()
            self.finish_discards()
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
        """Lets go of all files: the disk has failed, or the log is to be deleted."""
        self.refuse_appends()
        for segment in self.segments:
            segment.close_without_writing()

    def refuse_appends(self) -> None:
        """Nothing is written any more; what is open stays open."""
        self.is_closed = True
        self.unfinished_rolls.clear()
        self.read_hints.clear()
        self.active_segment = ClosedSegment(self.topic_partition, self.log_end_offset)

    def disk_failure(self, path: str, error: OSError) -> LogDirFailure:
        """What `error` means to the floors above. Raises LogClosed instead: the files of a closed log may be gone, that is no failure."""
        if self.is_closed:
            raise LogClosed(self.topic_partition) from error
        return LogDirFailure(self.log_dir, str(error.filename or path), error.strerror or str(error))


if not TYPE_CHECKING and (_native := compiled("storage.native")) is not None:
    _native.stand_before(
        PartitionLog, ValidationRules, Segment, LogSettings, OffsetIndex, TimeIndex, RealFile, log_append.Appended,
        plain_append.append_several_plain, log_append.append_as_follower, plain_append.are_new, plain_append.take_in,
        timestamp_offset, TAIL_BYTES,
    )  # fmt: skip
    PartitionLog.append_as_follower = _native.append_as_follower
    PartitionLog.append_several_plain = _native.append_several_plain
