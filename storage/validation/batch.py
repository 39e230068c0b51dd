"""Judges produced batches before a leader appends them.

`read_only_batch` is the part of Produce that needs no log: exactly one batch, of magic 2, and zstd only from version 7 on. Before version 3
it may be a message set of magic 0 or 1 instead, which a worker converts (`ottla.storage.validation.conversion`). `judge` applies the rules
of one log. `PartitionLog.append` calls it for every batch of a producer or a coordinator. Followers judge by other rules
(`ottla.storage.validation.replicated`).

The results are Apache Kafka's (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator). But records are read
only if the header cannot decide a rule. The header has their number, size and timestamps, and the checksum covers all of it.
docs/differences.md, section "Record validation", lists the rules that are not checked therefore. Work that may take long is not done here:
`BatchRun.needs_worker` asks the caller to run `complete_validation` in a worker thread.

Invariant: the bytes are not changed here. `BatchRun.stamp` changes them once the log knows the offset.
"""

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.fields import FieldError
from ottla.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    MAGIC_OFFSET,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Buffer,
    next_batch_size,
)
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES, CompressionCodec
from ottla.protocol.records.errors import CorruptRecord as CorruptBatch
from ottla.protocol.records.reader import PREMATURE_END, RECORDS_REMAIN, RecordsSummary
from ottla.storage.disk.topic_partition import TopicPartition
from ottla.storage.disk.yielding import yield_to_loop
from ottla.storage.errors import (
    CorruptRecord,
    ExpandedTooLarge,
    InvalidRecord,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from ottla.storage.validation.conversion import as_messages, convert
from ottla.storage.validation.limits import (
    FIRST_VERSION_WITH_ZSTD,
    FIRST_VERSION_WITHOUT_MESSAGE_SETS,
    GZIP,
    INLINE_CHECK_MAX_BYTES,
    INLINE_CHECK_MAX_RECORDS,
    LAST_CODEC,
    LZ4,
    MIN_RECORD_BYTES,
    NO_MAGIC,
    SMALLEST_TIMESTAMP,
    UNCOMPRESSED,
    WALK_MAX_RECORDS,
    ZSTD,
)
from ottla.storage.validation.record_errors import (
    InvalidOffsetOrSequence,
    InvalidProduceRecords,
    LegacyRecords,
    MalformedRecords,
    TooOldForZstd,
    UnreadableRecords,
    WrongChecksum,
)
from ottla.storage.validation.records import check_records, may_be_out_of_range, recompress
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun


def read_only_batch(run: BatchRun, api_version: int) -> None:
    """Read the header of the one batch that a Produce request has for a partition. An old request may have a message set.

    Raises MalformedRecords, InvalidProduceRecords, and TooOldForZstd below version 7.
    """
    start = run.start
    size = run.end - start
    if size >= HEADER_SIZE:
        run.read(start)
        if run.size != size or run.magic != CURRENT_MAGIC:
            read_other_records(run, api_version)
    else:
        read_other_records(run, api_version)
    if api_version < FIRST_VERSION_WITH_ZSTD and run.attributes & CODEC_MASK == ZSTD:
        raise TooOldForZstd


def read_other_records(run: BatchRun, api_version: int) -> None:
    """Take the records of an old request for a message set; decide about all others that are not exactly one batch.

    Raises the errors of `find_only_batch`.
    """
    records = run.frame[run.start : run.end]
    if api_version < FIRST_VERSION_WITHOUT_MESSAGE_SETS:
        try:
            size = next_batch_size(records, 0, len(records))
        except CorruptBatch as error:
            raise MalformedRecords(str(error)) from None
        magic = NO_MAGIC if size is None else records[MAGIC_OFFSET]
        if magic != CURRENT_MAGIC:
            run.take_messages(magic)
            return
    find_only_batch(records)


def find_only_batch(records: Buffer) -> None:
    """Decide about records that are not exactly one batch. An incomplete second batch is ignored, as in Apache Kafka.

    Raises MalformedRecords, InvalidProduceRecords, CorruptRecord.
    """
    end = len(records)
    size: int | None = None
    try:
        size = next_batch_size(records, 0, end)
        if size is None:
            raise InvalidProduceRecords("Produce requests must have at least one record batch per partition")
        magic = records[MAGIC_OFFSET]
        if magic != CURRENT_MAGIC:
            raise LegacyRecords(f"Produce requests are only allowed to contain record batches with magic version 2, not {magic}")
        if next_batch_size(records, size, end) is not None:
            raise InvalidProduceRecords("Produce requests are only allowed to contain exactly one record batch per partition")
    except CorruptBatch as error:
        if size is None:
            raise MalformedRecords(str(error)) from None
        raise CorruptRecord(None, f"behind the first batch: {error}") from None


def judge(run: BatchRun, rules: ValidationRules, now_ms: int, from_client: bool) -> None:
    """Check the batch that was read, before the log appends it. `now_ms` becomes its LogAppendTime, if the topic has one.

    Afterwards the run is accepted or needs a worker. A coordinator's own batch (`from_client` False) may hold control records, and its
    records are not examined. The producer state checks sequence and epoch, and the log checks the offset.

    Raises CorruptRecord, InvalidRecord, InvalidTimestamp, RecordTooLarge, UnreadableRecords, UnsupportedCompressionType,
    UnsupportedForMessageFormat.
    """
    if run.is_message_set:
        # Apache Kafka accepts an old request without a complete message, and appends nothing.
        run.needs_worker = run.magic != NO_MAGIC
        run.last_offset = run.first_offset - 1
        if rules.refuses_zstd and run.needs_worker:
            check_zstd(UNCOMPRESSED, rules)
        return
    size = run.size
    if run.base_offset and from_client:
        raise InvalidRecord(
            rules.topic_partition,
            f"The baseOffset of the record batch in the append to {rules.topic_partition} should be 0, but it is {run.base_offset}",
        )
    if size > rules.max_message_bytes:
        raise RecordTooLarge(rules.topic_partition, size, rules.max_message_bytes)
    if not run.crc_is_valid():
        raise WrongChecksum(rules.topic_partition, f"stored crc = {run.crc}")
    attributes = run.attributes
    codec = attributes & CODEC_MASK
    if codec > LAST_CODEC:
        raise UnreadableRecords(rules.topic_partition, f"unknown compression codec {codec}")
    count = run.count
    if rules.refuses_zstd and from_client:
        check_zstd(codec, rules)
    if from_client:
        check_client_header(run, rules)
    if rules.magic != CURRENT_MAGIC:
        check_fits_old_format(run, rules)
    max_timestamp = run.max_timestamp
    takes_log_append_time = run.takes_log_append_time = rules.takes_log_append_time
    target = rules.compression_codec
    run.needs_recompression = target is not None and target != codec and not (attributes & CONTROL_MASK and not codec)
    look_inside = from_client and (
        rules.compact
        or (rules.limits_timestamps and count <= WALK_MAX_RECORDS)
        or (attributes & TIMESTAMP_TYPE_MASK != 0 and (takes_log_append_time or max_timestamp == NO_TIMESTAMP))
    )
    if codec:
        if not begins_as(codec, run):
            look_inside = True  # the codec reports the fault
    elif from_client:
        if count <= WALK_MAX_RECORDS:
            latest = walk_lengths(run, rules.topic_partition)
            if not attributes & TIMESTAMP_TYPE_MASK:
                max_timestamp = latest
        elif count * MIN_RECORD_BYTES > size - HEADER_SIZE:
            raise InvalidRecord(rules.topic_partition, f"{count} records do not fit into {size - HEADER_SIZE} bytes")
    if rules.limits_timestamps and may_be_out_of_range(run.base_timestamp, max_timestamp, rules, now_ms):
        look_inside = True
    if takes_log_append_time:
        max_timestamp = now_ms
    if look_inside or run.needs_recompression or rules.magic != CURRENT_MAGIC:
        look_at_records(run, rules, now_ms, max_timestamp)
    else:
        run.accept(max_timestamp)


def check_zstd(codec: int, rules: ValidationRules) -> None:
    """Check that a batch of this codec is not stored in zstd, in a log that refuses that. Raises UnsupportedCompressionType."""
    target = rules.compression_codec
    if (codec if target is None else target) == ZSTD:
        raise UnsupportedCompressionType(rules.topic_partition, CompressionCodec.ZSTD.label)


def check_client_header(run: BatchRun, rules: ValidationRules) -> None:
    """Raises InvalidOffsetOrSequence."""
    count, last_delta = run.count, run.last_offset_delta
    # One comparison for Kafka's three: an offset range that is empty or negative, a count below one, and a difference between both.
    if count != last_delta + 1 or count <= 0:
        reason = f"Inconsistent batch offset range [0, {last_delta}] and count of records {count}"
        raise InvalidOffsetOrSequence(rules.topic_partition, reason)
    if run.attributes & CONTROL_MASK:
        raise InvalidOffsetOrSequence(rules.topic_partition, "Clients are not allowed to write control records")
    if run.producer_id >= 0 > run.base_sequence:
        reason = f"Invalid sequence number {run.base_sequence} in record batch with producerId {run.producer_id}"
        raise InvalidOffsetOrSequence(rules.topic_partition, reason)


def check_fits_old_format(run: BatchRun, rules: ValidationRules) -> None:
    """Check that messages can replace the batch, in a log of format 0 or 1. Raises UnsupportedForMessageFormat."""
    if run.attributes & TRANSACTIONAL_MASK:
        raise UnsupportedForMessageFormat(rules.topic_partition, "transactions are", rules.magic)
    if run.producer_id >= 0:
        raise UnsupportedForMessageFormat(rules.topic_partition, "idempotent producers are", rules.magic)


def check_fits_segment(size: int, segment_bytes: int, rules: ValidationRules) -> None:
    """Check that a segment can take a batch of this size, or messages that are appended together. Raises RecordBatchTooLarge."""
    if size > segment_bytes:
        raise RecordBatchTooLarge(rules.topic_partition, size, segment_bytes)


def begins_as(codec: int, run: BatchRun) -> bool:
    """Whether the body begins like data of the codec. True for snappy: without the Java framing it may begin with any byte."""
    if run.size < HEADER_SIZE + 4:
        return False
    found = fields.int32(run.data, run.at + HEADER_SIZE)
    if codec == GZIP:
        return found >> 8 == 0x1F8B08
    if codec == LZ4:
        return found == 0x04224D18
    return codec != ZSTD or found == 0x28B52FFD


def look_at_records(run: BatchRun, rules: ValidationRules, now_ms: int, max_timestamp: int) -> None:
    """Check every record of the batch now if there are few, or leave that to a worker. Raises the errors of `check_records`."""
    run.new_max_timestamp = max_timestamp
    run.needs_worker = True
    if run.needs_recompression or rules.magic != CURRENT_MAGIC or run.count > INLINE_CHECK_MAX_RECORDS or run.size > INLINE_CHECK_MAX_BYTES:
        return
    try:
        summary = check_records(run.batch(), run.header(), rules, now_ms, INLINE_CHECK_MAX_BYTES)
    except ExpandedTooLarge:
        return  # the small batch expands to a large one
    finally:
        run.records_checked = run.count
    _accept(run, summary)


def complete_validation(
    run: BatchRun, rules: ValidationRules, now_ms: int, base_offset: int = 0, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> BatchRun:
    """Do the work that `judge` left for a worker thread: check every record, recompress for the topic's codec, convert. Blocks; pure.

    `run` is a detached run; the returned one is accepted. For a log of an old format it holds messages, with offsets from `base_offset` on.
    Raises InvalidRecord, InvalidTimestamp, UnreadableRecords, RecordTooLarge, and ExpandedTooLarge if the records expand to more than
    `max_bytes`. After that it may be called again.
    """
    done = _validated(run, rules, now_ms, max_bytes)
    return done if rules.magic == CURRENT_MAGIC else as_messages(done, rules, base_offset, run.magic, yield_to_loop, max_bytes)


def _validated(run: BatchRun, rules: ValidationRules, now_ms: int, max_bytes: int) -> BatchRun:
    """The accepted batch of format 2."""
    if run.is_message_set:
        return convert(run, rules, now_ms, yield_to_loop, max_bytes)
    if not run.needs_recompression:
        _accept(run, check_records(run.batch(), run.header(), rules, now_ms, max_bytes, yield_to_loop))
        return run
    done = BatchRun(memoryview(recompress(run.batch(), run.header(), rules, now_ms, yield_to_loop, max_bytes)))
    done.read(0)
    done.takes_log_append_time = rules.takes_log_append_time
    done.guard = run.guard
    done.accept(done.max_timestamp)
    return done


def _accept(run: BatchRun, summary: RecordsSummary) -> None:
    """Accept the run with the maximum timestamp of its records."""
    run.accept(run.new_max_timestamp if run.takes_log_append_time else summary.max_timestamp)


def walk_lengths(run: BatchRun, topic_partition: TopicPartition) -> int:
    """Check that the lengths of the records add up to the uncompressed body. Returns the latest timestamp.

    Does not examine keys, values and headers. Raises InvalidRecord.
    """
    data = run.data
    at = run.at + HEADER_SIZE
    end = run.at + run.size
    latest = SMALLEST_TIMESTAMP
    try:
        for _ in range(run.count):
            zigzag, at = fields.uvarint(data, at)
            length = (zigzag >> 1) ^ -(zigzag & 1)
            delta, after_delta = fields.varlong(data, at + 1)
            if after_delta > end:
                raise InvalidRecord(topic_partition, PREMATURE_END)
            latest = max(latest, delta)
            if length < MIN_RECORD_BYTES - 1 or length > end - at:
                raise InvalidRecord(topic_partition, f"Invalid record size: {length} bytes where {max(end - at, 0)} remain")
            at += length
    except FieldError:
        raise InvalidRecord(topic_partition, PREMATURE_END) from None
    if at != end:
        raise InvalidRecord(topic_partition, RECORDS_REMAIN)
    return max(fields.wrapped_sum(run.base_timestamp, latest), NO_TIMESTAMP)
