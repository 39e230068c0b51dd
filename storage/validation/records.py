"""Checks every record of a produced batch, and recompresses batches for the broker.

Called by `ottla.storage.validation.batch` only if the batch header cannot decide a rule. The functions are pure: worker threads run them
for large batches. Messages are Apache Kafka's, because clients print them.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from ottla.protocol.records.batch import (
    CODEC_MASK,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    TimestampType,
)
from ottla.protocol.records.builder import encode_outlines, frame_batch
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES, compress
from ottla.protocol.records.errors import (
    CorruptCompressedData,
    DecompressionTooLarge,
    OverlongLength,
    RecordFormatError,
    UnknownCompressionCodec,
)
from ottla.protocol.records.joined import Joined, give_back, join
from ottla.protocol.records.reader import (
    RecordOutline,
    RecordsSummary,
    check_records,
    int64,
    outline_records,
    record_data,
    record_pieces,
)
from ottla.storage.disk.yielding import no_yield
from ottla.storage.errors import ExpandedTooLarge, InvalidRecord, InvalidTimestamp, RecordTooLarge, StorageError
from ottla.storage.validation.record_errors import NO_KEY, UnreadableRecords
from ottla.storage.validation.rules import NO_TIMESTAMP_LIMIT, ValidationRules

_SHOWN_ERRORS = 3  # errors repeated in the message of the batch
MOST_RECORD_ERRORS: Final = 10_000
"""Refused records of a batch that are listed, and of all batches of a request. A small batch may expand to millions, each with a message of
a hundred bytes."""
_RECORDS_PER_SLICE = 200
"""Records that are read or encoded before the event loop may run, 1 ms."""


def check_produced(
    records: Buffer,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    between: Callable[[], None] = no_yield,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    held_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> RecordsSummary:
    """Check all records of the batch against the rules: structure, keys on a compacted topic, timestamps.

    `between` is called between slices of the work. The records are decompressed piece by piece. All are decompressed together only if one
    of them is refused.

    Raises InvalidRecord or InvalidTimestamp (with the refused records), and UnreadableRecords. Raises ExpandedTooLarge if the records
    expand to more than `max_bytes`, or if more than `held_bytes` of them are needed at a time.
    """
    try:
        summary = check_records(record_pieces(records, 0, header, max_bytes), header, between, held_bytes)
        if _may_refuse(summary, header, rules, now_ms):
            data = record_data(records, 0, header, min(max_bytes, held_bytes))
            _refuse(outline_records(data, header), header, rules, now_ms, between, partial=bool(header.attributes & CODEC_MASK))
    except RecordFormatError as error:
        raise refusal(error, rules, header.attributes & CODEC_MASK) from None
    if not summary.offsets_are_consecutive and header.attributes & CODEC_MASK:
        # Apache Kafka tries to rewrite such a batch, as for old clients, and fails because it has skipped keys and values.
        raise UnreadableRecords(rules.topic_partition, "the offsets in the compressed batch are not consecutive")
    return summary


def recompress(
    records: Buffer,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    between: Callable[[], None],
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytearray:
    """The batch with the topic's codec, its records checked and their offsets counted from 0. Blocks; for a worker thread.

    `between` is called between slices of the work. A small batch may expand to millions of records or headers, so few records are objects
    at a time, and no headers.
    Raises the errors of `check_produced`, and RecordTooLarge if the result is larger than the topic allows.
    """
    try:
        pieces: list[Buffer] = []
        summary = check_records(_kept(record_pieces(records, 0, header, max_bytes), pieces), header, between, max_bytes)
        data = join(pieces)
        pieces.clear()  # to free all memory at the end would hold the interpreter
        between()
        if _may_refuse(summary, header, rules, now_ms):
            _refuse(outline_records(data, header), header, rules, now_ms, between, partial=False)
        body, base_timestamp, max_timestamp = _encoded_anew(data, header, rules, between)
        del data
        between()
    except RecordFormatError as error:
        raise refusal(error, rules, header.attributes & CODEC_MASK) from None
    if header.producer_id != NO_PRODUCER_ID and (header.producer_epoch == NO_PRODUCER_EPOCH or header.base_sequence < 0):
        raise UnreadableRecords(rules.topic_partition, "a producer without epoch or sequence cannot be written again")
    codec = header.attributes & CODEC_MASK if rules.compression_codec is None else rules.compression_codec
    batch = frame_batch(
        compress(codec, body, rules.compression_level) if codec else body,
        attributes=codec | (TIMESTAMP_TYPE_MASK if rules.takes_log_append_time else 0) | header.attributes & TRANSACTIONAL_MASK,
        base_offset=0,
        last_offset=header.record_count - 1,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        base_timestamp=base_timestamp,
        max_timestamp=now_ms if rules.takes_log_append_time else max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
    give_back(body)
    if len(batch) > rules.max_message_bytes:
        raise RecordTooLarge(rules.topic_partition, len(batch), rules.max_message_bytes)
    return batch


def _kept(pieces: Iterator[Buffer], into: list[Buffer]) -> Iterator[Buffer]:
    """The pieces, which are also kept in the list."""
    for piece in pieces:
        into.append(piece)
        yield piece


def _encoded_anew(data: bytes, header: BatchHeader, rules: ValidationRules, between: Callable[[], None]) -> tuple[memoryview, int, int]:
    """The records as the body of a batch, its base timestamp, and the largest timestamp. Raises UnreadableRecords."""
    records = outline_records(data, header)
    body = Joined(len(data))
    base_timestamp = max_timestamp = NO_TIMESTAMP
    count = 0
    while some := list(islice(records, _RECORDS_PER_SLICE)):
        if count:
            between()
        else:
            base_timestamp = some[0].timestamp
        earliest = min(record.timestamp for record in some)
        if earliest < NO_TIMESTAMP:
            raise UnreadableRecords(rules.topic_partition, f"Invalid negative timestamp {earliest}")
        max_timestamp = max(max_timestamp, *(record.timestamp for record in some))
        body.add(encode_outlines(some, count, base_timestamp))
        count += len(some)
    return body.view(), base_timestamp, max_timestamp


def _may_refuse(summary: RecordsSummary, header: BatchHeader, rules: ValidationRules, now_ms: int) -> bool:
    if rules.compact and summary.has_null_key:
        return True
    if rules.timestamp_type is TimestampType.CREATE_TIME and summary.min_timestamp != NO_TIMESTAMP:
        return may_be_out_of_range(summary.min_timestamp, summary.max_timestamp, rules, now_ms)
    return bool(header.attributes & TIMESTAMP_TYPE_MASK)


def may_be_out_of_range(earliest: int, latest: int, rules: ValidationRules, now_ms: int) -> bool:
    """Whether a record between these times may have one that the topic refuses."""
    if earliest < now_ms - NO_TIMESTAMP_LIMIT:
        return True  # the age of such a record is wrapped, and says nothing about later ones
    return _out_of_range(earliest, rules, now_ms) or _out_of_range(latest, rules, now_ms)


def _out_of_range(timestamp: int, rules: ValidationRules, now_ms: int) -> bool:
    age = int64(now_ms - timestamp)  # wrapped, as in Java
    return age > rules.timestamp_before_max_ms or int64(-age) > rules.timestamp_after_max_ms


def _refuse(
    records: Iterable[RecordOutline],
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    between: Callable[[], None],
    *,
    partial: bool,
) -> None:
    """Raise if any record breaks a rule, with all that do, up to `MOST_RECORD_ERRORS`.

    `partial`: Kafka would skip keys and values, and its message shows that.
    """
    errors: list[tuple[int, str]] = []
    refused = 0
    timestamps = False
    for index, record in enumerate(records):
        if index and index % _RECORDS_PER_SLICE == 0:
            between()
        if rules.compact and record.key_bytes < 0:
            message = f"{NO_KEY} in topic partition {rules.topic_partition}"
        elif rules.timestamp_type is TimestampType.CREATE_TIME and record.timestamp != NO_TIMESTAMP:
            if not _out_of_range(record.timestamp, rules, now_ms):
                continue
            earliest = now_ms - rules.timestamp_before_max_ms
            latest = int64(now_ms + rules.timestamp_after_max_ms)
            message = (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
                f"The timestamp should be within [{earliest}, {latest}]"
            )
            timestamps = True
        elif header.attributes & TIMESTAMP_TYPE_MASK:
            message = (
                f"Invalid timestamp type in message {_describe(record, partial)}. Producer should not set timestamp type to LogAppendTime."
            )
            timestamps = True
        else:
            continue
        refused += 1
        if refused <= MOST_RECORD_ERRORS:
            errors.append((index, message))
    if not errors:
        return
    if timestamps:
        raise InvalidTimestamp(rules.topic_partition, "One or more records have been rejected due to invalid timestamp", errors)
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in errors[:_SHOWN_ERRORS])
    raise InvalidRecord(
        rules.topic_partition,
        f"One or more records have been rejected due to {refused} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        errors,
    )


def _describe(record: RecordOutline, partial: bool) -> str:
    least = -1 if partial else 0
    key_bytes, value_bytes = max(record.key_bytes, least), max(record.value_bytes, least)
    name = "PartialDefaultRecord" if partial else "DefaultRecord"
    return f"{name}(offset={record.offset}, timestamp={record.timestamp}, key={key_bytes} bytes, value={value_bytes} bytes)"


def refusal(error: RecordFormatError, rules: ValidationRules, codec: int) -> StorageError:
    """The answer to a malformed batch of this codec. Apache Kafka has no error code for bytes that make its readers fail."""
    if isinstance(error, CorruptCompressedData | UnknownCompressionCodec) or (isinstance(error, OverlongLength) and not codec):
        return UnreadableRecords(rules.topic_partition, str(error))
    if isinstance(error, DecompressionTooLarge):
        return ExpandedTooLarge(rules.topic_partition, error.max_bytes, rules.max_message_bytes)
    return InvalidRecord(rules.topic_partition, str(error))
