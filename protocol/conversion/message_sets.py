"""Converts whole message sets of formats 0 and 1 to the records of a batch of format 2, and batches to message sets.

Produce validation, the readers of old logs, and the answers to old consumers call it. The functions are pure and run in threads; `between`
is called between two slices of the work, and lets the event loop run. The rules are those of Apache Kafka's LogValidator,
AbstractLegacyRecordBatch and RecordsUtil.

Any bytes give a result or one of `ottla.protocol.records.errors`. The limit of decompression bounds the memory: records are not larger than
the messages, messages have at most `MAX_DECOMPRESSED_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ottla.protocol.conversion.down_converter import DownConverter
from ottla.protocol.conversion.message_reader import MessageReader
from ottla.protocol.conversion.up_converter import FROM_MESSAGE, UpConverter
from ottla.protocol.conversion.wrapped_data import compress_messages, decompressed_messages
from ottla.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    MAGIC_OFFSET,
    MAX_INT32,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
    known_codec,
    next_batch_size,
    parse_header,
)
from ottla.protocol.records.builder import frame_batch
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES, CompressionCodec, compress, decompressed
from ottla.protocol.records.errors import InvalidRecord, MalformedMessage
from ottla.protocol.records.joined import Joined, give_back

RECORDS_PER_SLICE: Final = 2000
"""Records that a thread converts before the event loop may run. Compiled, they take 0.2 ms."""

_SIZE: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")


class MessageSet(NamedTuple):
    """The converted records of a message set, and the attributes of its first message, which hold for all."""

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

    def framed(
        self, codec: int, base_offset: int, last_offset: int, max_timestamp: int, *, takes_log_append_time: bool, level: int | None = None
    ) -> bytearray:
        """The records as one batch, which no producer with an id has sent. `level` None is the codec's default."""
        records = self.converter
        body = memoryview(records.room)[: records.size]
        return frame_batch(
            compress(codec, body, level) if codec else body,
            attributes=codec | (TIMESTAMP_TYPE_MASK if takes_log_append_time else 0),
            base_offset=base_offset,
            last_offset=last_offset,
            partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
            base_timestamp=records.base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=records.count,
        )


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
    reader = MessageReader(frame, start, end)
    if not reader.advance():
        raise InvalidRecord("a message set without a complete message")
    magic, attributes, offset = reader.magic, reader.attributes, reader.offset
    codec = attributes & CODEC_MASK
    if codec:
        _check_wrapper(reader, max_message_bytes)
        following = MessageReader(frame, reader.end, end)
        if following.advance():
            if following.magic < CURRENT_MAGIC:
                _check_wrapper(following, max_message_bytes)
            raise InvalidRecord("Compressed outer record has more than one batch")
        messages, timestamp = _messages_in(frame, reader, max_bytes)
        converter = UpConverter(messages, 0, len(messages), magic, is_wrapped=True, timestamp=timestamp, keeps_offsets=keeps_offsets)
    else:
        converter = UpConverter(frame, start, end, magic, keeps_offsets=keeps_offsets, max_message_bytes=max_message_bytes)
    while not converter.convert(RECORDS_PER_SLICE):
        between()
    if not converter.count and not converter.foreign:
        raise InvalidRecord("Found invalid compressed record set with no inner records")
    return MessageSet(converter, magic, codec, attributes, offset)


def unwrap(frame: memoryview, reader: MessageReader) -> memoryview:
    """The decompressed messages in the compressed message of `frame` at which the reader is. Raises the errors of `up_convert`."""
    _check_wrapper(reader, MAX_INT32)
    return _messages_in(frame, reader, MAX_DECOMPRESSED_BYTES)[0]


def _check_wrapper(reader: MessageReader, max_message_bytes: int) -> None:
    """Raise MessageTooLarge, CorruptRecord or UnknownCompressionCodec, in Apache Kafka's order."""
    reader.check_size(max_message_bytes)
    reader.check_checksum()
    reader.codec()


def _messages_in(frame: memoryview, reader: MessageReader, max_bytes: int) -> tuple[memoryview, int]:
    """The messages in a compressed one, and the timestamp that all of them have, or FROM_MESSAGE."""
    magic, codec = reader.magic, reader.attributes & CODEC_MASK
    if codec == CompressionCodec.ZSTD:
        raise InvalidRecord(f"Invalid wrapper compressionType found in legacy deep record iterator {magic}")
    reader.read_fields()
    if reader.value_size < 0:
        raise InvalidRecord(f"Found invalid compressed record set with null value (magic = {magic})")
    value = frame[reader.value_at : reader.value_at + reader.value_size]
    timestamp = reader.timestamp if magic and reader.attributes & TIMESTAMP_TYPE_MASK else FROM_MESSAGE
    return _joined(decompressed_messages(codec, magic, value, max_bytes), max_bytes), timestamp


def _joined(pieces: Iterator[bytes], max_bytes: int) -> memoryview:
    """The pieces, of at most `max_bytes`, as one writable buffer: nothing is in memory twice, and no long copy holds the interpreter."""
    first = next(pieces, b"")
    second = next(pieces, None)
    if second is None:
        return memoryview(bytearray(first))
    joined = Joined(max_bytes)
    joined.add(first)
    joined.add(second)
    for piece in pieces:
        joined.add(piece)
    return joined.view()


def down_convert(
    converter: DownConverter,
    frame: memoryview,
    start: int,
    end: int,
    first_offset: int,
    between: Callable[[], None],
    level: int | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> int:
    """Append the records of the batch in `frame[start:end]`, or of a message of a later format, to the messages of `converter`.

    Returns the bytes of its messages before they were compressed: 0 for a control batch.

    Records below `first_offset` are left out of a batch that is not compressed, as some old consumers require. The messages of a compressed
    batch become one compressed message; `level` None is the codec's default. `frame` must be writable. A converter whose batch is produced
    takes only one.

    Raises UnknownCompressionCodec, CorruptCompressedData, CorruptRecord, DecompressionTooLarge, InvalidRecord, MalformedMessage.
    """
    if frame[start + MAGIC_OFFSET] < CURRENT_MAGIC:
        frame = memoryview(as_batch(frame[start:end], between, max_bytes))
        start, end = 0, len(frame)
    elif next_batch_size(frame, start, end) is None:
        raise InvalidRecord("a batch that is not complete")
    header = parse_header(frame, start)
    if header.attributes & CONTROL_MASK:
        return 0
    codec = header.attributes & CODEC_MASK
    at = start + HEADER_SIZE
    if codec:
        frame = _joined(decompressed(known_codec(header), frame[at : start + header.size], max_bytes), max_bytes)
        at, end, first_offset = 0, len(frame), header.base_offset
    began = converter.size
    converter.begin(frame, at, end, header, first_offset, codec > 0)
    while not converter.convert(RECORDS_PER_SLICE):
        between()
    if converter.with_headers:
        raise MalformedMessage(f"{converter.with_headers} records have headers, for which magic {converter.magic} has no place")
    size = converter.size - began
    if codec:
        give_back(frame)
        if size:
            converter.replace(began, _wrapped(converter, began, header, level))
            give_back(converter.room, converter.size)
    return size


def _wrapped(converter: DownConverter, began: int, header: BatchHeader, level: int | None) -> bytes:
    """The compressed message with the messages of a batch, which begin at `began`."""
    magic, codec = converter.magic, header.attributes & CODEC_MASK
    append_time = header.attributes & TIMESTAMP_TYPE_MASK
    timestamp = header.max_timestamp if append_time else converter.max_timestamp
    with memoryview(converter.room) as room, room[began : converter.size] as messages:
        value = compress_messages(codec, magic, messages, level)
    return wrap(value, magic, codec | (append_time if magic else 0), converter.last_written, timestamp)


def wrap(value: Buffer, magic: int, attributes: int, offset: int, timestamp: int = NO_TIMESTAMP) -> bytes:
    """The compressed message with `value`, the compressed messages."""
    behind_crc = bytes((magic, attributes)) + (_TIMESTAMP.pack(timestamp) if magic else b"") + _SIZE.pack(-1) + _SIZE.pack(len(value))
    checksum = crc32(value, crc32(behind_crc))
    size = 4 + len(behind_crc) + len(value)
    return b"".join((_TIMESTAMP.pack(offset), _SIZE.pack(size), checksum.to_bytes(4, "big"), behind_crc, value))


def as_batch(messages: memoryview, between: Callable[[], None], max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytearray:
    """The complete messages as one batch of format 2, which keeps their offsets and timestamps. `messages` must be writable.

    Raises the errors of `up_convert`.
    """
    found = up_convert(messages, 0, len(messages), between, keeps_offsets=True, max_bytes=max_bytes)
    found.check_offsets()
    records = found.converter
    if records.foreign:
        raise InvalidRecord(f"messages have another magic than the first one, {found.magic}")
    base_offset, last_offset = found.base_offset, found.base_offset + records.last_offset - records.first_offset
    return found.framed(found.codec, base_offset, last_offset, records.max_timestamp, takes_log_append_time=found.takes_log_append_time)
