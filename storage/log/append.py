"""Appending to a log: methods of `PartitionLog`, kept in a file of their own.

`append_as_leader` is the hottest path of the broker: it runs on the event loop once per produced batch. Everything that is not needed
by a plain batch (producer state, rolling, epochs) stands behind one comparison.
"""

import logging
from enum import IntEnum
from typing import TYPE_CHECKING

from protocol.records.batch import (
    ATTRIBUTES_OFFSET,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    HEADER_STRUCT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
    increment_sequence,
    next_batch_size,
)
from protocol.records.builder import ControlRecordType, EndTransactionMarker, control_record_type, parse_end_transaction_marker
from protocol.records.checksum import crc32c
from protocol.records.errors import RecordFormatError
from protocol.records.reader import iter_records
from storage.errors import CorruptRecord, OffsetsOutOfOrder, RecordBatchTooLarge, UnexpectedAppendOffset
from storage.producers.state import BatchMetadata, ProducerState
from storage.segment.segment import Segment
from storage.segment.transaction_index import AbortedTransaction
from storage.validation.batch import ValidatedBatch

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

_unpack_header = HEADER_STRUCT.unpack_from


class AppendOrigin(IntEnum):
    """Who appends, which decides what producer state is held against the batch."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class Appended:
    """Where an append went. `log_append_time_ms` is -1 under CreateTime."""

    __slots__ = ("duplicate", "first_offset", "last_offset", "log_append_time_ms", "log_start_offset")

    def __init__(
        self, first_offset: int, last_offset: int, log_append_time_ms: int, log_start_offset: int, duplicate: bool = False
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate


def append_as_leader(
    self: "PartitionLog", batch: ValidatedBatch, leader_epoch: int, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
) -> Appended:
    """Stamps offset and leader epoch into the batch, writes it with one system call, and tells where it went.

    A batch that its producer sent before is not written again; `duplicate` is then set. Raises RecordBatchTooLarge, OutOfOrderSequence,
    InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced, LogDirFailure; the log is unchanged by all of them.
    """
    header = batch.header
    _, batch_length, _, _, _, _, last_offset_delta, _, _, producer_id, _, _, _ = header
    length = batch_length + LOG_OVERHEAD
    first_offset = self.log_end_offset
    last_offset = first_offset + last_offset_delta
    marker = None
    if producer_id >= 0:
        if header.attributes & CONTROL_MASK:
            marker = read_marker(batch.records, 0, header)
        duplicate = _check_producer(self.producer_state.state, header, marker, first_offset, origin)
        if duplicate is not None:
            return Appended(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, self.log_start_offset, True)
    max_timestamp = batch.max_timestamp
    segment = self.active_segment
    try:
        if leader_epoch != self.latest_epoch:
            self.assign_epoch(leader_epoch, first_offset)
        if segment.should_roll(length, last_offset, max_timestamp, now_ms):
            if length > self.settings.segment_bytes:
                raise RecordBatchTooLarge(self.topic_partition, length, self.settings.segment_bytes)
            segment = self.roll(first_offset)
        batch.stamp(first_offset, leader_epoch)
        segment.append(batch.records, length, last_offset, max_timestamp, last_offset)
    except OSError as error:
        raise self.disk_failure(segment.path, error) from error
    self.log_end_offset = last_offset + 1
    if segment.size >= segment.reserve_at:
        self.context.reserve(self)
    if producer_id >= 0:
        if max_timestamp != header.max_timestamp:
            header = header._replace(max_timestamp=max_timestamp)  # as it stands in the log
        _update_producer(self, segment, header, marker, first_offset)
    if last_offset >= self.next_flush_offset:
        self.on_flush_due()
    return Appended(first_offset, last_offset, batch.log_append_time, self.log_start_offset)


def append_as_follower(self: "PartitionLog", records: memoryview, leader_epoch: int) -> Appended:
    """Writes batches as the leader has them, with the leader's offsets, in one system call.

    A batch that is cut off at the end is left out, as are batches of a later epoch than `leader_epoch`: the answer came from a leader that
    is no longer ours. Raises CorruptRecord, OffsetsOutOfOrder, UnexpectedAppendOffset, RecordBatchTooLarge, LogDirFailure.
    """
    producers: list[tuple[BatchHeader, EndTransactionMarker | None]] = []
    epochs: list[tuple[int, int]] = []
    latest_epoch = self.latest_epoch
    max_timestamp, offset_of_max_timestamp = NO_TIMESTAMP, -1
    first_offset = last_offset = -1
    position, end = 0, len(records)
    # Straight-line, without a BatchHeader for each: batches of 300 bytes cost 0.9 µs each with CRC and write, where they cost 2.2 with one.
    try:
        while (remaining := end - position) >= HEADER_SIZE:
            values = _unpack_header(records, position)
            base_offset, batch_length, epoch, magic, crc, attributes, last_offset_delta, _, batch_timestamp, producer_id, _, _, _ = values
            size = batch_length + LOG_OVERHEAD
            if magic != CURRENT_MAGIC or size < HEADER_SIZE:
                next_batch_size(records, position, end)  # says what is wrong
            if size > remaining:
                break
            if epoch > leader_epoch:
                log.warning(
                    "%s: batches from offset %d on have leader epoch %d, the current one is %d; left out",
                    self.topic_partition,
                    base_offset,
                    epoch,
                    leader_epoch,
                )
                break
            if crc32c(records[position + ATTRIBUTES_OFFSET : position + size]) != crc:
                raise CorruptRecord(self.topic_partition, f"the CRC of the batch at offset {base_offset} is not {crc:#010x}")
            if position == 0:
                first_offset = base_offset
            if base_offset + last_offset_delta <= last_offset:
                raise OffsetsOutOfOrder(self.topic_partition, last_offset, base_offset + last_offset_delta)
            last_offset = base_offset + last_offset_delta
            if batch_timestamp > max_timestamp:
                max_timestamp, offset_of_max_timestamp = batch_timestamp, last_offset
            if epoch != latest_epoch and epoch >= 0:
                latest_epoch = epoch
                epochs.append((epoch, base_offset))
            if producer_id >= 0:
                header = BatchHeader._make(values)
                producers.append((header, read_marker(records, position, header) if attributes & CONTROL_MASK else None))
            position += size
        if remaining < HEADER_SIZE:
            next_batch_size(records, position, end)  # what is cut off is left out, unless no batch can begin so
    except RecordFormatError as error:
        raise CorruptRecord(self.topic_partition, str(error)) from None
    log_end_offset = self.log_end_offset
    if position == 0:
        return Appended(log_end_offset, log_end_offset - 1, NO_TIMESTAMP, self.log_start_offset)
    if first_offset < log_end_offset:
        raise UnexpectedAppendOffset(self.topic_partition, first_offset, last_offset, log_end_offset)
    if position > self.settings.segment_bytes:
        raise RecordBatchTooLarge(self.topic_partition, position, self.settings.segment_bytes)
    segment = self.active_segment
    try:
        for epoch, start_offset in epochs:
            self.assign_epoch(epoch, start_offset)
        if segment.should_roll(position, last_offset, max_timestamp, self.context.clock.now_ms()):
            segment = self.roll(first_offset)
        segment.append(records if position == end else records[:position], position, last_offset, max_timestamp, offset_of_max_timestamp)
    except OSError as error:
        raise self.disk_failure(segment.path, error) from error
    self.log_end_offset = last_offset + 1
    if segment.size >= segment.reserve_at:
        self.context.reserve(self)
    for header, marker in producers:
        _update_producer(self, segment, header, marker, header.base_offset)
    if last_offset >= self.next_flush_offset:
        self.on_flush_due()
    return Appended(first_offset, last_offset, NO_TIMESTAMP, self.log_start_offset)


def read_marker(records: memoryview | bytearray | bytes, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in a control batch; None when it holds no record, as the cleaner may leave it, or a record of another kind.

    Raises protocol's RecordFormatError.
    """
    for record in iter_records(records, position, header):
        if control_record_type(record.key) in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return parse_end_transaction_marker(record)
        break
    return None


def _check_producer(
    state: ProducerState, header: BatchHeader, marker: EndTransactionMarker | None, first_offset: int, origin: AppendOrigin
) -> BatchMetadata | None:
    attributes = header.attributes
    if marker is not None:
        state.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch, first_offset)
        return None
    is_transactional = bool(attributes & TRANSACTIONAL_MASK)
    if origin is AppendOrigin.CLIENT:
        return state.check_append(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            increment_sequence(header.base_sequence, header.last_offset_delta),
            is_transactional=is_transactional,
            first_offset=first_offset,
        )
    state.check_coordinator_append(header.producer_id, header.producer_epoch, is_transactional, first_offset)
    return None


def _update_producer(
    self: "PartitionLog", segment: Segment, header: BatchHeader, marker: EndTransactionMarker | None, first_offset: int
) -> None:
    try:
        replay_producer(self.producer_state.state, segment, header, marker, first_offset)
    except OSError as error:
        raise self.disk_failure(segment.transaction_index.path, error) from error


def replay_producer(
    state: ProducerState, segment: Segment | None, header: BatchHeader, marker: EndTransactionMarker | None, first_offset: int
) -> None:
    """Takes one batch that stands in the log into the producer state. `segment` gets the index entry of an aborted transaction."""
    if marker is None:
        if not header.attributes & CONTROL_MASK:
            state.on_append(
                header.producer_id,
                header.producer_epoch,
                header.last_sequence,
                first_offset,
                last_offset=first_offset + header.last_offset_delta,
                timestamp=header.max_timestamp,
                is_transactional=bool(header.attributes & TRANSACTIONAL_MASK),
            )
        return
    completed = state.on_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        first_offset,
        timestamp=header.max_timestamp,
        is_aborted=marker.type is ControlRecordType.ABORT,
    )
    if completed is not None:
        if completed.is_aborted and segment is not None:
            segment.transaction_index.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset)
            )
        state.complete(completed)
