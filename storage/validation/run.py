"""Holds consecutive batches in a buffer, on their way into a log: the unit of an append.

The run of a producer or a coordinator is one batch, to which the log gives its offsets. A follower's run has any number of batches, with
the leader's offsets. The Produce handler has one run for a whole request, and points it at the records of each partition. No object is
created for a batch.

Invariants: after `read` the header fields are those of the batch at `at`. A run with `needs_worker` set is not accepted.
"""

from typing import final

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.request_reader import NO_FRAME
from ottla.protocol.records.batch import (
    ATTRIBUTES_OFFSET,
    CURRENT_MAGIC,
    HEADER_SIZE,
    KNOWN_ATTRIBUTES,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MIN_BATCH_SIZE,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    TimestampType,
    message_crc_is_valid,
    next_batch_size,
    parse_header,
    stamp_max_timestamp,
)
from ottla.protocol.records.builder import EndTransactionMarker
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.walk import RecordCheck
from ottla.storage.validation.conversion_cost import Conversion


@final
class BatchRun:
    """Consecutive batches. After an append it has their offsets.

    `epochs` are the leader epochs that began in the run, with their first offsets. `forgets_epochs` tells that the run has messages, which
    know no epoch, so that the log must forget the earlier ones. `records_checked` is the work of their check, in records.
    `is_message_set` tells that the run holds messages of format 0 or 1, which `complete_validation` converts. `work` is the cost of a
    follower's append, in batches. `pieces` are neighbouring messages that a leader appends like one batch: position -> (bytes, first
    offset, last offset, largest timestamp).
    """

    __slots__ = (
        "at",
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "check",
        "conversion",
        "count",
        "crc",
        "data",
        "end",
        "epochs",
        "first_offset",
        "forgets_epochs",
        "frame",
        "guard",
        "has_producers",
        "is_accepted",
        "is_duplicate",
        "is_message_set",
        "last_offset",
        "last_offset_delta",
        "leader_epoch",
        "log_append_time_ms",
        "log_start_offset",
        "magic",
        "marker",
        "max_timestamp",
        "needs_recompression",
        "needs_worker",
        "new_max_timestamp",
        "pieces",
        "producer_epoch",
        "producer_id",
        "raises_epoch",
        "records_checked",
        "size",
        "start",
        "takes_log_append_time",
        "work",
    )

    def __init__(self, frame: memoryview) -> None:
        """Points at all of `frame`, or at a copy if it is read-only, because a leader stamps batches in place."""
        if frame.readonly:
            frame = memoryview(bytearray(frame))
        self.frame = frame
        self.data: fields.View = frame
        self.work = 0
        self.check = RecordCheck()
        self.pieces: dict[int, tuple[int, int, int, int]] | None = None
        self.point_at(0, len(frame))

    def point_at(self, start: int, end: int) -> None:
        """Turn to the batches in `frame[start:end]`, and forget the earlier ones."""
        self.start = start
        self.end = end
        self.at = -1
        self.size = 0
        self.is_accepted = False
        self.needs_worker = False
        self.needs_recompression = False
        self.takes_log_append_time = False
        self.is_duplicate = False
        self.guard: object = None
        """The guard from `PartitionLog.begin_verification`, for a batch that opens a transaction."""
        self.marker: EndTransactionMarker | None = None
        """The marker in the only batch of the run, once it is known."""
        self.raises_epoch = False
        """Whether the marker ends a transaction of version 2."""
        self.records_checked = 0
        self.is_message_set = False
        self.conversion: Conversion | None = None
        """The cost of converting messages of format 0 or 1 to the batch."""
        self.has_producers = False
        self.epochs: list[tuple[int, int]] | None = None
        self.forgets_epochs = False
        self.first_offset = self.last_offset = -1
        self.log_start_offset = -1
        self.log_append_time_ms = self.new_max_timestamp = NO_TIMESTAMP

    def forget_frame(self) -> None:
        """Let go of the buffer, of which nothing more is read."""
        self.frame = NO_FRAME
        self.data = NO_FRAME

    def read(self, at: int) -> None:
        """Read the header of the batch at `at` of the frame. Raises FieldError when the frame ends in the header."""
        if 0 <= fields.int8(self.data, at + MAGIC_OFFSET) < CURRENT_MAGIC:
            self._read_message(at)
            return
        (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = fields.read_batch_header(self.data, at)
        self.size = self.batch_length + LOG_OVERHEAD
        self.at = at

    def read_unit(self, at: int) -> None:
        """Read the header of the batch at `at`, or turn to the piece there."""
        if self.pieces is None:
            self.read(at)
            return
        self.size, self.base_offset, last_offset, self.max_timestamp = self.pieces[at]
        self.last_offset_delta = last_offset - self.base_offset
        self.at = at

    def take_messages(self, magic: int) -> None:
        """Turn to the whole run as one message set. Its header has no fields of a batch."""
        self.at = self.start
        self.size = self.end - self.start
        self.magic = magic
        self.attributes = 0
        self.producer_id = NO_PRODUCER_ID
        self.is_message_set = True

    def read_next(self, at: int) -> bool:
        """Read the header of the batch at `at` of the run. Returns False when the run ends before the end of the batch.

        Raises protocol's RecordFormatError where no batch can begin.
        """
        remaining = self.end - at
        if remaining < HEADER_SIZE and (remaining < MIN_BATCH_SIZE or fields.int8(self.data, at + MAGIC_OFFSET) == CURRENT_MAGIC):
            next_batch_size(self.frame, at, self.end)
            return False
        self.read(at)
        if self.magic != CURRENT_MAGIC or self.size < HEADER_SIZE:
            next_batch_size(self.frame, at, self.end)
        return self.size <= remaining

    def _read_message(self, at: int) -> None:
        (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = parse_header(self.frame, at)
        self.size = self.batch_length + LOG_OVERHEAD
        self.at = at

    def crc_is_valid(self) -> bool:
        """Whether the checksum of the batch that was read is right."""
        at = self.at
        if self.magic < CURRENT_MAGIC:
            return message_crc_is_valid(self.frame, at)
        return bool(crc32c(self.frame[at + ATTRIBUTES_OFFSET : at + self.size]) == self.crc)

    def has_epoch(self, leader_epoch: int) -> None:
        """Record that the current batch is the first one of an epoch that is new to the log, or of none."""
        if self.epochs is None:
            self.epochs = []
        self.epochs.append((leader_epoch, self.base_offset))

    def header(self) -> BatchHeader:
        """The header in the form for functions that read records."""
        return BatchHeader(
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )

    def batch(self) -> memoryview:
        """The bytes of the batch at `at`."""
        return self.frame[self.at : self.at + self.size]

    def accept(self, max_timestamp: int) -> None:
        """Allow the append of the only batch, with `max_timestamp` as its largest timestamp."""
        self.new_max_timestamp = max_timestamp
        self.log_append_time_ms = max_timestamp if self.takes_log_append_time else NO_TIMESTAMP
        self.is_accepted = True
        self.needs_worker = False

    def stamp(self, base_offset: int, leader_epoch: int) -> None:
        """Write offset and leader epoch into the accepted batch, and timestamp type and maximum where they differ."""
        type_bits = TIMESTAMP_TYPE_MASK if self.takes_log_append_time else 0
        if self.max_timestamp != self.new_max_timestamp or self.attributes & TIMESTAMP_TYPE_MASK != type_bits:
            stamp_max_timestamp(self.frame, self.at, self.header(), TimestampType(type_bits >> 3), self.new_max_timestamp)
            self.max_timestamp = self.new_max_timestamp
            self.attributes = self.attributes & KNOWN_ATTRIBUTES & ~TIMESTAMP_TYPE_MASK | type_bits
        fields.stamp(self.data, self.at, base_offset, self.batch_length, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def detached(self) -> "BatchRun":
        """A run with a copy of the batch, for a batch that has to wait while its buffer is used again."""
        found = BatchRun(memoryview(bytearray(self.batch())))
        if self.is_message_set:
            found.take_messages(self.magic)
        else:
            found.read(0)
        found.needs_worker = self.needs_worker
        found.needs_recompression = self.needs_recompression
        found.takes_log_append_time = self.takes_log_append_time
        found.new_max_timestamp = self.new_max_timestamp
        found.guard = self.guard
        return found
