"""Converts whole message sets of formats 0 and 1 to the records of a batch of format 2, and batches to message sets.

Produce validation, the readers of old logs, and the answers to old consumers call it. The functions are pure and run in threads; `between`
is called between two slices of the work, and lets the event loop run. The rules are those of Apache Kafka's LogValidator,
AbstractLegacyRecordBatch and RecordsUtil.

Any bytes give a result or one of `protocol.records.errors`. The limit of decompression bounds the memory: records are not larger than the
messages, messages have at most `MAX_DECOMPRESSED_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from protocol.conversion.down_converter import DownConverter
from protocol.conversion.limits import (
    CODEC_MASK,
    CURRENT_MAGIC,
    FROM_MESSAGE,
    LAST_CODEC,
    LOG_OVERHEAD,
    MAX_DECOMPRESSED_BYTES,
    MAX_INT32,
    MESSAGE_HEADER_BYTES,
    MIN_MESSAGE_BYTES,
    NO_TIMESTAMP,
    RECORDS_PER_SLICE,
    TIMESTAMP_BYTES,
    TIMESTAMP_TYPE_MASK,
    UP_TO_MAGIC_BYTES,
)
from protocol.conversion.up_converter import UpConverter
from protocol.conversion.wrapped_data import compress_messages, decompress_messages
from protocol.records.batch import (
    CONTROL_MASK,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Buffer,
    parse_header,
)
from protocol.records.builder import frame_batch
from protocol.records.compression import CompressionCodec, compress
from protocol.records.errors import (
    CorruptRecord,
    InvalidMagic,
    InvalidRecord,
    MalformedMessage,
    MessageTooLarge,
    UnknownCompressionCodec,
)
from protocol.records.reader import record_data

_START: Final = Struct(">qiIbB")  # offset, size, checksum, magic, attributes
_SIZE: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")


class MessageSet(NamedTuple):
    """The converted records of a message set, and what its first message says about all."""

    converter: UpConverter
    magic: int
    codec: int
    attributes: int
    wrapper_offset: int
    """Offset of the first message, which is the compressed one if there is one."""

    @property
    def base_offset(self) -> int:
        """The offset of the first record.

        In format 1 messages in a compressed one have relative offsets, and the outer offset is that of the last. Producers may leave the
        outer offset 0.
        """
        found = self.converter
        if not (self.codec and self.magic and self.wrapper_offset):
            return found.first_offset
        return self.wrapper_offset - found.last_offset + found.first_offset

    def check_offsets(self) -> None:
        """Raises InvalidRecord if the offset of a compressed message contradicts those in it."""
        found = self.converter
        if self.codec and self.magic and self.wrapper_offset and self.wrapper_offset < found.last_offset:
            raise InvalidRecord(
                f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{self.wrapper_offset}' is less than the last "
                f"inner message offset '{found.last_offset}' and it is not zero."
            )

    @property
    def takes_log_append_time(self) -> bool:
        """Whether the timestamps are those of a broker's append."""
        return self.magic > 0 and bool(self.attributes & TIMESTAMP_TYPE_MASK)


class Message(NamedTuple):
    """The start of a message at some position of a buffer: its offset, its size with the offset, and the fields behind."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int


def message_at(buffer: Buffer, at: int, end: int) -> Message | None:
    """The message at `at`; None if it is not complete before `end`.

    Raises CorruptRecord for a size that no format allows, InvalidMagic for a magic that never existed.
    """
    left = end - at
    if left < LOG_OVERHEAD:
        return None
    size: int = _SIZE.unpack_from(buffer, at + 8)[0]
    if size < MIN_MESSAGE_BYTES:
        raise CorruptRecord(f"Record size {size} is less than the minimum record overhead ({MIN_MESSAGE_BYTES})")
    if left < UP_TO_MAGIC_BYTES:
        return None
    if not 0 <= buffer[at + UP_TO_MAGIC_BYTES - 1] <= CURRENT_MAGIC:
        raise InvalidMagic(int.from_bytes(buffer[at + UP_TO_MAGIC_BYTES - 1 : at + UP_TO_MAGIC_BYTES], "big", signed=True))
    if size > left - LOG_OVERHEAD:
        return None
    offset, _, crc, magic, attributes = _START.unpack_from(buffer, at)
    return Message(offset, size + LOG_OVERHEAD, crc, magic, attributes)


def up_convert(
    frame: memoryview,
    start: int,
    end: int,
    between: Callable[[], None],
    *,
    keeps_offsets: bool = False,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    max_message_bytes: int = MAX_INT32,
) -> MessageSet:
    """Convert the messages in `frame[start:end]`, of which the first is complete. `frame` must be writable.

    Raises CorruptRecord, InvalidRecord, MalformedMessage, MessageTooLarge, UnknownCompressionCodec, CorruptCompressedData,
    DecompressionTooLarge.
    """
    first = message_at(frame, start, end)
    if first is None:
        raise InvalidRecord("a message set without a complete message")
    codec = first.attributes & CODEC_MASK
    if codec:
        _check_wrapper(frame, start, first, max_message_bytes)
        behind = start + first.size
        second = message_at(frame, behind, end)
        if second is not None:
            if second.magic < CURRENT_MAGIC:
                _check_wrapper(frame, behind, second, max_message_bytes)
            raise InvalidRecord("Compressed outer record has more than one batch")
        messages, timestamp = _messages_in(frame, start, first, max_bytes)
        converter = UpConverter(messages, 0, len(messages), first.magic, is_wrapped=True, timestamp=timestamp, keeps_offsets=keeps_offsets)
    else:
        converter = UpConverter(frame, start, end, first.magic, keeps_offsets=keeps_offsets, max_message_bytes=max_message_bytes)
    while not converter.convert(RECORDS_PER_SLICE):
        between()
    if not converter.count and not converter.foreign:
        raise InvalidRecord("Found invalid compressed record set with no inner records")
    return MessageSet(converter, first.magic, codec, first.attributes, first.offset)


def unwrap(frame: Buffer, start: int, wrapper: Message, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> tuple[memoryview, int]:
    """The decompressed messages in the compressed message at `start`, and the timestamp that all of them have, or FROM_MESSAGE.

    Raises the errors of `up_convert`.
    """
    _check_wrapper(frame, start, wrapper, MAX_INT32)
    return _messages_in(frame, start, wrapper, max_bytes)


def _check_wrapper(frame: Buffer, start: int, wrapper: Message, max_message_bytes: int) -> None:
    """Raise MessageTooLarge, CorruptRecord or UnknownCompressionCodec, in Apache Kafka's order."""
    if wrapper.size > max_message_bytes:
        raise MessageTooLarge(wrapper.size)
    if crc32(memoryview(frame)[start + LOG_OVERHEAD + 4 : start + wrapper.size]) != wrapper.crc:
        raise CorruptRecord(f"the checksum of the message at offset {wrapper.offset} is wrong")
    if wrapper.attributes & CODEC_MASK > LAST_CODEC:
        raise UnknownCompressionCodec(wrapper.attributes & CODEC_MASK)


def _messages_in(frame: Buffer, start: int, wrapper: Message, max_bytes: int) -> tuple[memoryview, int]:
    codec, magic = wrapper.attributes & CODEC_MASK, wrapper.magic
    body = memoryview(frame)[start + LOG_OVERHEAD : start + wrapper.size]
    if codec == CompressionCodec.ZSTD:
        raise InvalidRecord(f"Invalid wrapper compressionType found in legacy deep record iterator {magic}")
    at = MESSAGE_HEADER_BYTES
    timestamp = FROM_MESSAGE
    if magic:
        if wrapper.attributes & TIMESTAMP_TYPE_MASK:
            timestamp = _TIMESTAMP.unpack_from(body, at)[0]
        at += TIMESTAMP_BYTES
    key = _sized(body, at)
    value = _sized(body, at + _SIZE.size + (0 if key is None else len(key)))
    if value is None:
        raise InvalidRecord(f"Found invalid compressed record set with null value (magic = {magic})")
    return memoryview(bytearray(decompress_messages(codec, magic, value, max_bytes))), timestamp


def _sized(body: memoryview, at: int) -> memoryview | None:
    """The bytes behind their length at `at`; None for a negative length. Raises MalformedMessage."""
    if at + _SIZE.size > len(body):
        raise MalformedMessage(f"a message of {len(body)} bytes is too short")
    size = _SIZE.unpack_from(body, at)[0]
    if size < 0:
        return None
    at += _SIZE.size
    if size > len(body) - at:
        raise MalformedMessage(f"{size} bytes of a message where {len(body) - at} remain")
    return body[at : at + size]


class Downgraded(NamedTuple):
    """The messages of one batch."""

    messages: Buffer
    records: int
    uncompressed_bytes: int
    """Bytes of the messages before they were compressed."""
    largest: int
    """Bytes of the largest message."""


NOTHING: Final = Downgraded(b"", 0, 0, 0)


def down_convert(
    batch: bytes,
    magic: int,
    first_offset: int,
    between: Callable[[], None],
    *,
    is_produced: bool = False,
    level: int | None = None,
) -> Downgraded:
    """The records of a batch, or of a message of a later format than `magic`, as messages of format `magic`. Nothing for a control batch.

    Records below `first_offset` are left out of a batch that is not compressed, as some old consumers require. The messages of a compressed
    batch become one compressed message; `level` None is the codec's default. A batch that is produced gets new offsets, counted from its
    base offset, and must have no headers.

    Raises UnknownCompressionCodec, CorruptCompressedData, DecompressionTooLarge, InvalidRecord, MalformedMessage.
    """
    if batch[UP_TO_MAGIC_BYTES - 1] < CURRENT_MAGIC:
        batch = bytes(as_batch(memoryview(bytearray(batch)), between))
    header = parse_header(batch)
    if header.attributes & CONTROL_MASK:
        return NOTHING
    codec = header.attributes & CODEC_MASK
    records = bytearray(record_data(batch, 0, header))
    converter = DownConverter(
        records,
        header,
        magic,
        first_offset=header.base_offset if codec else first_offset,
        is_wrapped=codec > 0,
        is_produced=is_produced,
    )
    while not converter.convert(RECORDS_PER_SLICE):
        between()
    if converter.with_headers:
        raise MalformedMessage(f"{converter.with_headers} records have headers, for which magic {magic} has no place")
    messages = memoryview(converter.room)[: converter.size]
    if not converter.count:
        return NOTHING
    if not codec:
        return Downgraded(messages, converter.count, converter.size, converter.largest)
    timestamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else converter.max_timestamp
    attributes = codec | (header.attributes & TIMESTAMP_TYPE_MASK if magic else 0)
    wrapped = wrap(compress_messages(codec, magic, messages, level), magic, attributes, converter.last_written, timestamp)
    return Downgraded(wrapped, converter.count, converter.size, len(wrapped))


def wrap(value: Buffer, magic: int, attributes: int, offset: int, timestamp: int = NO_TIMESTAMP) -> bytes:
    """The compressed message with `value`, the compressed messages."""
    behind_crc = bytes((magic, attributes)) + (_TIMESTAMP.pack(timestamp) if magic else b"") + _SIZE.pack(-1) + _SIZE.pack(len(value))
    checksum = crc32(value, crc32(behind_crc))
    size = 4 + len(behind_crc) + len(value)
    return b"".join((_TIMESTAMP.pack(offset), _SIZE.pack(size), checksum.to_bytes(4, "big"), behind_crc, value))


def as_batch(messages: memoryview, between: Callable[[], None]) -> bytearray:
    """The complete messages as one batch of format 2, which keeps their offsets and timestamps. `messages` must be writable.

    Raises the errors of `up_convert`.
    """
    found = up_convert(messages, 0, len(messages), between, keeps_offsets=True)
    found.check_offsets()
    records = found.converter
    if records.foreign:
        raise InvalidRecord(f"messages have another magic than the first one, {found.magic}")
    base_offset = found.base_offset
    return frame_batch(
        compress(found.codec, memoryview(records.room)[: records.size]) if found.codec else records.room[: records.size],
        attributes=found.codec | (TIMESTAMP_TYPE_MASK if found.takes_log_append_time else 0),
        base_offset=base_offset,
        last_offset=base_offset + records.last_offset - records.first_offset,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        base_timestamp=records.base_timestamp,
        max_timestamp=records.max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=records.count,
    )
