"""Converts the message sets of old producers (formats 0 and 1) to batches of format 2, and batches to the old format of a log.

`ottla.storage.validation.batch` calls it in a worker thread. The rules are those of Apache Kafka's LogValidator. Every message set
becomes a batch first, also one for a log of an old format. Produce requests that may have message sets have no field for single records, so
only the kind of the error counts.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from ottla.protocol.conversion.down_converter import DownConverter
from ottla.protocol.conversion.message_reader import MessageReader
from ottla.protocol.conversion.message_sets import RECORDS_PER_SLICE, MessageSet, down_convert, up_convert
from ottla.protocol.records.batch import (
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
)
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES, CompressionCodec
from ottla.protocol.records.errors import (
    CorruptCompressedData,
    CorruptRecord,
    DecompressionTooLarge,
    MalformedMessage,
    MessageTooLarge,
    RecordFormatError,
    UnknownCompressionCodec,
)
from ottla.storage.errors import ExpandedTooLarge, InvalidRecord, InvalidTimestamp, RecordTooLarge, StorageError
from ottla.storage.validation.conversion_cost import Conversion
from ottla.storage.validation.record_errors import NO_KEY, UnreadableRecords, WrongChecksum
from ottla.storage.validation.records import MOST_RECORD_ERRORS
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun

MESSAGES_BYTES: Final = 4096
"""Messages that a leader appends like one batch, in bytes; the default distance of the entries of an index."""


def convert(
    run: BatchRun, rules: ValidationRules, now_ms: int, between: Callable[[], None], max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> BatchRun:
    """The run with its message set as one batch, which is accepted. Blocks. `between` is called between slices of the work.

    Raises WrongChecksum, InvalidRecord, InvalidTimestamp, UnreadableRecords, RecordTooLarge for a message, or a batch, that is larger
    than the topic allows, and ExpandedTooLarge.
    """
    began_ns = perf_counter_ns()
    try:
        messages = up_convert(run.frame, run.start, run.end, between, max_bytes=max_bytes, max_message_bytes=rules.max_message_bytes)
        messages.check_offsets()
    except MessageTooLarge as error:
        raise RecordTooLarge(rules.topic_partition, error.size, rules.max_message_bytes) from None
    except RecordFormatError as error:
        raise _refusal(error, rules) from None
    records = messages.converter
    _check(messages, rules, now_ms)
    codec = messages.codec if rules.compression_codec is None else rules.compression_codec
    batch = messages.framed(
        codec,
        0,
        records.count - 1,
        now_ms if rules.takes_log_append_time else records.max_timestamp,
        takes_log_append_time=rules.takes_log_append_time,
        level=rules.compression_level,
    )
    if rules.magic == CURRENT_MAGIC and len(batch) > rules.max_message_bytes:
        raise RecordTooLarge(rules.topic_partition, len(batch), rules.max_message_bytes)
    done = BatchRun(memoryview(batch))
    done.read(0)
    done.takes_log_append_time = rules.takes_log_append_time
    done.accept(done.max_timestamp)
    done.conversion = Conversion(records.count, perf_counter_ns() - began_ns, len(records.room) + HEADER_SIZE + records.size)
    return done


def as_messages(
    run: BatchRun,
    rules: ValidationRules,
    base_offset: int,
    produced_magic: int,
    between: Callable[[], None],
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> BatchRun:
    """The accepted batch of `run` as messages of the log's format, with offsets from `base_offset` on. They are accepted. Blocks.

    `run` stays as it is. Raises UnreadableRecords for headers and for zstd, which messages cannot have, RecordTooLarge,
    and ExpandedTooLarge.
    """
    began_ns = perf_counter_ns()
    magic = rules.magic
    batch = run.detached()
    batch.stamp(base_offset, NO_PARTITION_LEADER_EPOCH)
    codec = batch.attributes & CODEC_MASK
    if codec == CompressionCodec.ZSTD:
        raise UnreadableRecords(rules.topic_partition, f"zstd is not possible in message format {magic}")
    records = batch.batch()
    converter = DownConverter(magic, is_produced=True)
    try:
        uncompressed_bytes = down_convert(converter, records, 0, len(records), base_offset, between, rules.compression_level, max_bytes)
    except RecordFormatError as error:
        raise _refusal(error, rules) from None
    if converter.largest > rules.max_message_bytes:
        raise RecordTooLarge(rules.topic_partition, converter.largest, rules.max_message_bytes)
    done = BatchRun(memoryview(converter.room)[: converter.size])
    done.read(0)
    if done.size < converter.size:
        done.pieces = _pieces(done.frame, between)
        done.read_unit(0)
    done.takes_log_append_time = run.takes_log_append_time
    done.accept(run.new_max_timestamp)
    done.first_offset = base_offset
    done.last_offset = base_offset + converter.count - 1
    # Format 0 is compressed again, because the inner offsets change. Otherwise messages of the log's own format count as unchanged.
    if produced_magic != magic or (codec and not magic):
        took_ns = perf_counter_ns() - began_ns + (run.conversion.nanoseconds if run.conversion else 0)
        done.conversion = Conversion(converter.count, took_ns, run.size + uncompressed_bytes)
    return done


def _pieces(frame: memoryview, between: Callable[[], None]) -> dict[int, tuple[int, int, int, int]]:
    """The messages in pieces (`BatchRun.pieces`). The event loop handles a piece like a batch, and an index may get an entry for it."""
    pieces: dict[int, tuple[int, int, int, int]] = {}
    reader = MessageReader(frame, 0, len(frame))
    start, first_offset, latest = 0, -1, NO_TIMESTAMP
    number = 0
    while reader.advance():
        if reader.start == start:
            first_offset, latest = reader.offset, NO_TIMESTAMP
        reader.read_fields()
        latest = max(latest, reader.timestamp)
        if reader.end - start >= MESSAGES_BYTES or reader.end == len(frame):
            pieces[start] = reader.end - start, first_offset, reader.offset, latest
            start = reader.end
        number += 1
        if number % RECORDS_PER_SLICE == 0:
            between()
    return pieces


def _check(messages: MessageSet, rules: ValidationRules, now_ms: int) -> None:
    """Apply the rules for single records."""
    records = messages.converter
    earliest = records.min_timestamp
    if earliest != NO_TIMESTAMP and rules.limits_timestamps:
        latest = records.max_timestamp
        if now_ms - earliest > rules.timestamp_before_max_ms or latest - now_ms > rules.timestamp_after_max_ms:
            raise InvalidTimestamp(rules.topic_partition, f"timestamps from {earliest} to {latest} are out of range", [])
    if messages.takes_log_append_time and (rules.takes_log_append_time or records.untimed):
        raise InvalidTimestamp(rules.topic_partition, "Producer should not set timestamp type to LogAppendTime", [])
    if rules.compact and records.null_keys:
        message = f"{NO_KEY} in topic partition {rules.topic_partition}"
        counted = min(records.null_keys, MOST_RECORD_ERRORS)  # the event loop goes through them, for a metric
        raise InvalidRecord(rules.topic_partition, message, [(records.first_null_key, message)] * counted)
    is_negative = earliest < NO_TIMESTAMP
    # Single messages are converted one by one, so those in front of a foreign one come first.
    if records.foreign and (messages.codec or not is_negative):
        raise InvalidRecord(rules.topic_partition, f"a message has another magic than the first one, {messages.magic}")
    if is_negative:
        raise UnreadableRecords(rules.topic_partition, f"Invalid negative timestamp {earliest}")


def _refusal(error: RecordFormatError, rules: ValidationRules) -> StorageError:
    if isinstance(error, (CorruptCompressedData, UnknownCompressionCodec, MalformedMessage)):
        return UnreadableRecords(rules.topic_partition, str(error))
    if isinstance(error, DecompressionTooLarge):
        return ExpandedTooLarge(rules.topic_partition, error.max_bytes, rules.max_message_bytes)
    if isinstance(error, CorruptRecord):
        return WrongChecksum(rules.topic_partition, str(error))
    return InvalidRecord(rules.topic_partition, str(error))
