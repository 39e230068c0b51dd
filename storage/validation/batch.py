"""Judges produced batches before a leader appends them.

`read_only_batch` is the part of Produce that needs no log: exactly one batch, of magic 2, and zstd only from version 7 on. Before version 3
it may be a message set of magic 0 or 1 instead, which a worker converts (`ottla.storage.validation.conversion`). `judge` applies the rules
of one log. `PartitionLog.append` calls it for every batch of a producer or a coordinator. Followers judge by other rules
(`ottla.storage.validation.replicated`).

The results are Apache Kafka's (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator); docs/differences.md,
section "Record validation", lists the exceptions. Every record of a client is walked over: 13 ns for one in a plain batch. Work that may
take long is not done here: `BatchRun.needs_worker` asks the caller to run `complete_validation` in a worker thread.

Invariant: the bytes are not changed here. `BatchRun.stamp` changes them once the log knows the offset.
"""

from typing import Final

from ottla.protocol.records.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    MAGIC_OFFSET,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Buffer,
    next_batch_size,
)
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES, CompressionCodec, decompressed, decompressed_at_once
from ottla.protocol.records.errors import BatchTooSmall, DecompressionTooLarge, RecordFormatError
from ottla.protocol.records.errors import CorruptRecord as CorruptBatch
from ottla.protocol.records.reader import RecordsSummary, check_pieces
from ottla.protocol.records.record_step import RECORDS_REMAIN
from ottla.protocol.records.walk import RecordCheck
from ottla.storage.disk.yielding import yield_to_loop
from ottla.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from ottla.storage.validation.conversion import as_messages, convert
from ottla.storage.validation.record_errors import (
    InvalidOffsetOrSequence,
    InvalidProduceRecords,
    LegacyRecords,
    MalformedRecords,
    TooOldForZstd,
    UnreadableRecords,
    WrongChecksum,
)
from ottla.storage.validation.records import check_produced, may_be_out_of_range, recompress, refusal
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun

INLINE_CHECK_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of an uncompressed batch up to which its records are checked on the event loop.

The check takes 0.1 ms per MiB of records of 100 bytes, 1.5 ms of the smallest ones, and 3 ms of empty headers. A worker thread would need
a copy of the batch, 0.1 ms per MiB, and 20 to 30 µs for the way there and back.
"""
INLINE_CHECK_MAX_RECORDS: Final = 65_536
"""Records up to which a batch is checked on the event loop, 1 ms."""
INLINE_SUSPECT_MAX_RECORDS: Final = 1000
"""Records up to which a batch that may break a rule of its topic is examined on the event loop, record by record: 1 ms."""
SUSPECT_SHIFT: Final = 6
"""To examine one of these records is as much work as to check 64 others."""
INLINE_EXPANDED_MAX_BYTES: Final = 256 * 1024
"""Decompressed bytes up to which a batch is checked on the event loop: 0.1 ms for lz4, 0.4 ms for gzip."""
EXPANDED_SHIFT: Final = 5
"""32 decompressed bytes are as much work as the check of a record. A batch of 100 bytes may expand to 130,000 empty headers, 0.7 ms."""
FIRST_VERSION_WITH_ZSTD: Final = 7
"""Produce version from which on zstd is allowed."""
FIRST_VERSION_WITHOUT_MESSAGE_SETS: Final = 3
"""Produce version from which on records must have format 2 (KIP-98)."""
NO_MAGIC: Final = -1
"""Stands for the magic of a message set without a complete message."""
UNCOMPRESSED: Final = int(CompressionCodec.NONE)
ZSTD: Final = int(CompressionCodec.ZSTD)
LAST_CODEC: Final = ZSTD


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
    find_only_batch(records, api_version)


def attributes_of_first(records: Buffer) -> int:
    """Return the attributes of the first batch; 0 if there is none of magic 2. Raises MalformedRecords."""
    try:
        size = _size_at(records, 0)
    except CorruptBatch as error:
        raise MalformedRecords(str(error)) from None
    return records[ATTRIBUTES_OFFSET + 1] if size is not None and records[MAGIC_OFFSET] == CURRENT_MAGIC else 0


def _size_at(records: Buffer, position: int) -> int | None:
    """As `next_batch_size`. Apache Kafka finds that a batch is smaller than its header after all that is decided here."""
    try:
        return next_batch_size(records, position, len(records))
    except BatchTooSmall as error:
        return error.size


def find_only_batch(records: Buffer, api_version: int) -> None:
    """Decide about records that are not exactly one batch. An incomplete second batch is ignored, as in Apache Kafka.

    Raises MalformedRecords, InvalidProduceRecords, CorruptRecord, TooOldForZstd.
    """
    size: int | None = None
    try:
        size = _size_at(records, 0)
        if size is None:
            raise InvalidProduceRecords("Produce requests must have at least one record batch per partition")
        magic = records[MAGIC_OFFSET]
        if magic != CURRENT_MAGIC:
            raise LegacyRecords(f"Produce requests are only allowed to contain record batches with magic version 2, not {magic}")
        if api_version < FIRST_VERSION_WITH_ZSTD and records[ATTRIBUTES_OFFSET + 1] & CODEC_MASK == ZSTD:
            raise TooOldForZstd
        if _size_at(records, size) is not None:
            raise InvalidProduceRecords("Produce requests are only allowed to contain exactly one record batch per partition")
        next_batch_size(records, 0, size)
    except CorruptBatch as error:
        if size is None:
            raise MalformedRecords(str(error)) from None
        raise CorruptRecord(None, f"in or behind the first batch: {error}") from None


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
    if rules.refuses_zstd and from_client:
        check_zstd(codec, rules)
    if from_client:
        check_client_header(run, rules)
    if rules.magic != CURRENT_MAGIC:
        check_fits_old_format(run, rules)
    run.takes_log_append_time = rules.takes_log_append_time
    target = rules.compression_codec
    run.needs_recompression = target is not None and target != codec and not (attributes & CONTROL_MASK and not codec)
    run.new_max_timestamp = now_ms if rules.takes_log_append_time else run.max_timestamp
    if run.needs_recompression or rules.magic != CURRENT_MAGIC:
        run.needs_worker = True
    elif not from_client:
        run.accept(run.new_max_timestamp)
    elif codec:
        look_at_compressed(run, rules, now_ms)
    else:
        look_at_records(run, rules, now_ms)


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


def look_at_records(run: BatchRun, rules: ValidationRules, now_ms: int) -> None:
    """Check every record of an uncompressed batch, or leave that to a worker if it is very large. Raises the errors of `check_produced`."""
    if run.size > INLINE_CHECK_MAX_BYTES or run.count > INLINE_CHECK_MAX_RECORDS:
        run.needs_worker = True
        return
    run.records_checked = run.count
    check = run.check
    check.begin(run.count, run.base_timestamp)
    end = run.at + run.size
    try:
        at = check.take(run.data, run.at + HEADER_SIZE, end, run.size)
    except RecordFormatError as error:
        raise refusal(error, rules, UNCOMPRESSED) from None
    if check.missing:
        raise refusal(check.end_error(), rules, UNCOMPRESSED)
    if at != end:
        raise InvalidRecord(rules.topic_partition, RECORDS_REMAIN)
    accept_checked(run, rules, now_ms)


def look_at_compressed(run: BatchRun, rules: ValidationRules, now_ms: int) -> None:
    """Check every record of a compressed batch, or leave that to a worker if it is large. Raises the errors of `check_produced`."""
    codec = run.attributes & CODEC_MASK
    if run.count > INLINE_CHECK_MAX_RECORDS or run.size > INLINE_EXPANDED_MAX_BYTES:
        run.needs_worker = True
        return
    run.records_checked = run.count + (run.size >> 1)  # to decompress two bytes is about as much work as to check a record
    check = run.check
    check.begin(run.count, run.base_timestamp)
    body = run.frame[run.at + HEADER_SIZE : run.at + run.size]
    data = decompressed_at_once(codec, body, INLINE_EXPANDED_MAX_BYTES)
    if data is not None and are_good_records(check, data):
        run.records_checked += len(data) >> EXPANDED_SHIFT
        accept_checked(run, rules, now_ms)
        return
    run.records_checked += INLINE_EXPANDED_MAX_BYTES >> EXPANDED_SHIFT  # it may expand to as much
    check.begin(run.count, run.base_timestamp)
    try:
        check_pieces(check, decompressed(codec, body, INLINE_EXPANDED_MAX_BYTES), None, INLINE_EXPANDED_MAX_BYTES)
    except DecompressionTooLarge:
        run.needs_worker = True  # the small batch expands to a large one
        return
    except RecordFormatError as error:
        raise refusal(error, rules, codec) from None
    accept_checked(run, rules, now_ms)


def are_good_records(check: RecordCheck, data: Buffer) -> bool:
    """Whether all bytes are the records of the batch with which `check` has begun, without a fault. The caller finds out which one."""
    end = len(data)
    try:
        return check.take(data, 0, end, end) == end and check.index == check.count
    except RecordFormatError:
        return False


def accept_checked(run: BatchRun, rules: ValidationRules, now_ms: int) -> None:
    """Accept a batch whose records were checked. If one of them may break a rule, all are examined first, now or by a worker.

    Raises the errors of `check_produced`.
    """
    check = run.check
    latest, earliest = check.latest, check.earliest
    is_suspect = rules.limits_timestamps and may_be_out_of_range(earliest, latest, rules, now_ms)
    if run.attributes & CODEC_MASK and not check.offsets_are_consecutive:
        is_suspect = True
    if run.attributes & TIMESTAMP_TYPE_MASK or (rules.compact and check.has_null_key):
        is_suspect = True
    if is_suspect:
        if run.count > INLINE_SUSPECT_MAX_RECORDS:
            run.needs_worker = True
            return
        run.records_checked += run.count << SUSPECT_SHIFT
        latest = check_produced(run.batch(), run.header(), rules, now_ms).max_timestamp
    run.accept(now_ms if rules.takes_log_append_time else latest)


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
        _accept(run, check_produced(run.batch(), run.header(), rules, now_ms, yield_to_loop, held_bytes=max_bytes))
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
