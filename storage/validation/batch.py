"""What a leader demands of produced records before it appends them.

`check_request` is the part of Produce that needs no log (exactly one batch of magic 2, zstd only from version 7); `validate_produce` is the
rest, against the rules of one log. Called by the Produce handler on the event loop for every batch, and by the coordinators for
their own.

The outcomes are Apache Kafka's (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator), but the records are
not walked unless a rule cannot be decided from the header: the header says how many there are, how long, and at what times, and the
checksum covers all of it. What remains unseen is listed in docs/differences.md, section "Record validation". Work that may take long is
not done here: `ValidatedBatch.needs_worker` asks the caller to run `complete_validation` in a worker thread.

Invariant: nothing here changes the bytes; `ValidatedBatch.stamp` does, once the log knows the offset.
"""

from typing import Final

from protocol.records.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
    TimestampType,
    next_batch_size,
    parse_header,
    stamp,
    stamp_max_timestamp,
)
from protocol.records.checksum import crc32c
from protocol.records.compression import CompressionCodec
from protocol.records.errors import CorruptRecord as CorruptBatch
from protocol.records.errors import InvalidRecord as InvalidStructure
from protocol.records.errors import LegacyMessageFormat
from protocol.records.reader import RecordsSummary, int64, read_varint, read_varlong
from storage.disk.topic_partition import TopicPartition
from storage.errors import CorruptRecord, InvalidRecord, RecordTooLarge, UnsupportedCompressionType
from storage.validation.record_errors import (
    InvalidOffsetOrSequence,
    InvalidProduceRecords,
    LegacyRecords,
    MalformedRecords,
    UnreadableRecords,
    WrongChecksum,
)
from storage.validation.records import check_records, recompress
from storage.validation.rules import ValidationRules

# Uncompressed batches of at most this many records have their lengths and timestamps walked: 0.7 µs for one record, 1.6 for four
# (benchmarks/validation.py). A batch of 16 KiB with 150 records would cost 75 µs, more than all else that is done for it; it is trusted.
WALK_MAX_RECORDS: Final = 4

# Checks that need every record (compacted topics, timestamps that look out of range) run on the event loop up to this many records, 0.3 ms
# at worst; a hop to a worker thread and back costs 20 to 30 µs.
INLINE_CHECK_MAX_RECORDS: Final = 256
INLINE_CHECK_MAX_BYTES: Final = 64 * 1024  # decompressed

FIRST_VERSION_WITH_ZSTD: Final = 7  # of Produce
_LAST_CODEC: Final = int(CompressionCodec.ZSTD)  # reading an enum member costs 40 ns
MIN_RECORD_BYTES: Final = 7  # length, attributes, timestamp delta, offset delta, key length, value length, header count

# How a body begins. Snappy without the Java framing begins with any byte, so nothing can be told from it.
_CODEC_MAGIC: Final = (None, b"\x1f\x8b\x08", None, b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")


class ValidatedBatch:
    """A batch the leader accepts, and what has to be done to it.

    `records` is exactly the batch (bytes behind it in the request are cut off), still in the caller's buffer. When `needs_worker` is set,
    the batch is not accepted yet: take it `detached`, run `complete_validation` in a worker thread, and go on with what that returns.
    """

    __slots__ = ("header", "log_append_time", "max_timestamp", "needs_recompression", "needs_worker", "records", "timestamp_type")

    def __init__(
        self,
        records: memoryview | bytearray,
        header: BatchHeader,
        timestamp_type: TimestampType,
        max_timestamp: int,
        needs_recompression: bool = False,
        needs_worker: bool = False,
    ) -> None:
        self.records = records
        self.header = header
        self.timestamp_type = timestamp_type
        self.max_timestamp = max_timestamp
        self.log_append_time = max_timestamp if timestamp_type else NO_TIMESTAMP
        self.needs_recompression = needs_recompression
        self.needs_worker = needs_worker

    @property
    def size(self) -> int:
        """Bytes to append."""
        return self.header.batch_length + LOG_OVERHEAD

    def stamp(self, base_offset: int, leader_epoch: int) -> None:
        """Write offset and leader epoch into `records` in place, and timestamp type and maximum where the header has them otherwise."""
        records = self.records
        header = self.header
        if header.max_timestamp != self.max_timestamp or header.attributes & TIMESTAMP_TYPE_MASK != self.timestamp_type << 3:
            stamp_max_timestamp(records, 0, header, self.timestamp_type, self.max_timestamp)
        stamp(records, 0, base_offset, leader_epoch, header.batch_length)

    def detached(self) -> "ValidatedBatch":
        """The same with a copy of the records, for a batch that has to wait while its buffer is used again."""
        return ValidatedBatch(
            bytearray(self.records), self.header, self.timestamp_type, self.max_timestamp, self.needs_recompression, self.needs_worker
        )


def check_request(records: Buffer, api_version: int = FIRST_VERSION_WITH_ZSTD) -> BatchHeader:
    """The header of the one batch a Produce request has for a partition.

    Raises MalformedRecords, InvalidProduceRecords, and UnsupportedCompressionType for zstd below version 7.
    """
    size = len(records)
    if size >= HEADER_SIZE:
        header = parse_header(records)
        if header.batch_length != size - LOG_OVERHEAD or header.magic != 2:
            header = _find_only_batch(records)
    else:
        header = _find_only_batch(records)
    if api_version < FIRST_VERSION_WITH_ZSTD and header.attributes & CODEC_MASK == CompressionCodec.ZSTD:
        raise UnsupportedCompressionType(None, CompressionCodec.ZSTD.label)
    return header


def _find_only_batch(records: Buffer) -> BatchHeader:
    """The header where the one batch is not the whole of the records. An incomplete second batch is ignored, as Apache Kafka does."""
    end = len(records)
    size: int | None = None
    try:
        size = next_batch_size(records, 0, end)
        if size is None:
            raise InvalidProduceRecords("Produce requests must have at least one record batch per partition")
        if next_batch_size(records, size, end) is not None:
            raise InvalidProduceRecords("Produce requests are only allowed to contain exactly one record batch per partition")
    except LegacyMessageFormat as error:
        reason = f"Produce requests are only allowed to contain record batches with magic version 2, not {error.magic}"
        raise LegacyRecords(reason) from None
    except CorruptBatch as error:
        if size is None:
            raise MalformedRecords(str(error)) from None
        raise CorruptRecord(None, f"behind the first batch: {error}") from None
    return parse_header(records)


def validate_produce(
    records: Buffer, rules: ValidationRules, now_ms: int, header: BatchHeader | None = None, *, from_client: bool = True
) -> ValidatedBatch:
    """Everything that can be told about a produced batch before the log appends it; `now_ms` becomes its LogAppendTime.

    `header` is what `check_request` returned, which is called here if it was not before. `from_client` False is a coordinator's own batch,
    which may hold control records and whose records are not looked at. Sequence and epoch are the producer state's to judge, the offset is
    the log's. Records that cannot be written to are copied, because `stamp` will.

    Raises what `check_request` raises, and CorruptRecord, InvalidRecord, InvalidTimestamp, RecordTooLarge, UnreadableRecords.
    """
    if header is None:
        header = check_request(records)
    base_offset, batch_length, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id, _, sequence, count = header
    size = batch_length + LOG_OVERHEAD
    batch = memoryview(records)[:size]
    if batch.readonly:
        batch = memoryview(bytearray(batch))

    if base_offset and from_client:
        raise InvalidRecord(
            rules.topic_partition,
            f"The baseOffset of the record batch in the append to {rules.topic_partition} should be 0, but it is {base_offset}",
        )
    if size > rules.max_message_bytes:
        raise RecordTooLarge(rules.topic_partition, size, rules.max_message_bytes)
    if crc32c(batch[ATTRIBUTES_OFFSET:]) != crc:
        raise WrongChecksum(rules.topic_partition, f"stored crc = {crc}")
    codec = attributes & CODEC_MASK
    if codec > _LAST_CODEC:
        raise UnreadableRecords(rules.topic_partition, f"unknown compression codec {codec}")
    if from_client:
        # One comparison for Kafka's three: an offset range that is empty or negative, a count below one, and the two disagreeing.
        if count != last_delta + 1 or count <= 0:
            reason = f"Inconsistent batch offset range [0, {last_delta}] and count of records {count}"
            raise InvalidOffsetOrSequence(rules.topic_partition, reason)
        if attributes & CONTROL_MASK:
            raise InvalidOffsetOrSequence(rules.topic_partition, "Clients are not allowed to write control records")
        if producer_id >= 0 > sequence:
            reason = f"Invalid sequence number {sequence} in record batch with producerId {producer_id}"
            raise InvalidOffsetOrSequence(rules.topic_partition, reason)

    timestamp_type = rules.timestamp_type
    target = rules.compression_codec
    needs_recompression = target is not None and target != codec and not (attributes & CONTROL_MASK and not codec)
    look_inside = from_client and (
        rules.compact
        or (rules.limits_timestamps and count <= WALK_MAX_RECORDS)
        or (attributes & TIMESTAMP_TYPE_MASK != 0 and (bool(timestamp_type) or max_timestamp == NO_TIMESTAMP))
    )
    if codec:
        magic = _CODEC_MAGIC[codec]
        if magic is not None and bytes(batch[HEADER_SIZE : HEADER_SIZE + len(magic)]) != magic:
            look_inside = True  # finds out that it is not what it says
    elif from_client:
        if count <= WALK_MAX_RECORDS:
            latest = walk_lengths(batch, count, base_timestamp, rules.topic_partition)
            if not attributes & TIMESTAMP_TYPE_MASK:
                max_timestamp = latest
        elif count * MIN_RECORD_BYTES > size - HEADER_SIZE:
            raise InvalidRecord(rules.topic_partition, f"{count} records do not fit into {size - HEADER_SIZE} bytes")
    if rules.limits_timestamps and (
        now_ms - base_timestamp > rules.timestamp_before_max_ms or max_timestamp - now_ms > rules.timestamp_after_max_ms
    ):
        look_inside = True
    if timestamp_type:
        max_timestamp = now_ms
    if not look_inside and not needs_recompression:
        return ValidatedBatch(batch, header, timestamp_type, max_timestamp)
    unfinished = ValidatedBatch(batch, header, timestamp_type, max_timestamp, needs_recompression, needs_worker=True)
    if needs_recompression or count > INLINE_CHECK_MAX_RECORDS or size > INLINE_CHECK_MAX_BYTES:
        return unfinished
    try:
        summary = check_records(batch, header, rules, now_ms, INLINE_CHECK_MAX_BYTES)
    except RecordTooLarge:
        return unfinished  # small as it came, large inside
    return _accept(unfinished, summary)


def complete_validation(batch: ValidatedBatch, rules: ValidationRules, now_ms: int) -> ValidatedBatch:
    """What `validate_produce` left for a worker thread: check every record, recompress if the topic's codec is another. Blocking and pure.

    Raises InvalidRecord, InvalidTimestamp, UnreadableRecords, RecordTooLarge.
    """
    if not batch.needs_recompression:
        return _accept(batch, check_records(batch.records, batch.header, rules, now_ms))
    records = recompress(batch.records, batch.header, rules, now_ms)
    header = parse_header(records)
    return ValidatedBatch(records, header, rules.timestamp_type, header.max_timestamp)


def _accept(batch: ValidatedBatch, summary: RecordsSummary) -> ValidatedBatch:
    """The batch with the maximum timestamp that its records have."""
    max_timestamp = batch.max_timestamp if batch.timestamp_type else summary.max_timestamp
    return ValidatedBatch(batch.records, batch.header, batch.timestamp_type, max_timestamp)


def walk_lengths(records: memoryview, count: int, base_timestamp: int, topic_partition: TopicPartition) -> int:
    """That the lengths of the records add up to the uncompressed body; the latest timestamp. Keys, values and headers are not looked at."""
    at = HEADER_SIZE
    end = len(records)
    latest = -(1 << 63)
    try:
        for _ in range(count):
            length = records[at]
            at += 1
            if length < 0x80:
                length = length >> 1 ^ -(length & 1)
            elif (high := records[at]) < 0x80:
                length += (high << 7) - 0x80
                length = length >> 1 ^ -(length & 1)
                at += 1
            else:
                length, at = read_varint(records, at - 1)
            delta = records[at + 1]
            delta = delta >> 1 ^ -(delta & 1) if delta < 0x80 else read_varlong(records, at + 1)[0]
            latest = delta if delta > latest else latest
            at += length
            if length < MIN_RECORD_BYTES - 1 or at > end:
                raise InvalidRecord(topic_partition, f"Invalid record size: {length} bytes where {max(end - at + length, 0)} remain")
    except (IndexError, InvalidStructure):
        raise InvalidRecord(topic_partition, "Incorrect declared batch size, premature EOF reached") from None
    if at != end:
        raise InvalidRecord(topic_partition, "Incorrect declared batch size, records still remaining in file")
    return max(int64(base_timestamp + latest), NO_TIMESTAMP)
