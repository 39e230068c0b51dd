"""Reads messages of formats 0 and 1 one after the other, in place; the fields of each are attributes.

The converters and `message_sets` use it for the messages of a request, of a compressed message, and of a log. There may be batches among
them; of a batch only position, offset and magic are read.

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 | timestamp int64 (magic 1) | key length int32, bytes | value
    length int32, bytes
"""

from __future__ import annotations

from typing import Final, final

from ottla.protocol.conversion import message_fields
from ottla.protocol.cursors import fields
from ottla.protocol.records import compression
from ottla.protocol.records.batch import (
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MIN_LEGACY_RECORD_SIZE,
    NO_TIMESTAMP,
)
from ottla.protocol.records.errors import CorruptRecord, InvalidMagic, MalformedMessage, MessageTooLarge, UnknownCompressionCodec

LAST_CODEC: Final = int(compression.CompressionCodec.ZSTD)
"""Last codec id with a meaning in any format."""
MESSAGE_HEADER_BYTES: Final = 6
"""Checksum, magic and attributes of a message."""
TIMESTAMP_BYTES: Final = 8


@final
class MessageReader:
    """See the module. `advance` goes to the next message, `read_fields` looks inside."""

    __slots__ = (
        "_data",
        "_is_nested",
        "_last",
        "_tables",
        "attributes",
        "crc",
        "end",
        "key_at",
        "key_size",
        "magic",
        "offset",
        "start",
        "timestamp",
        "value_at",
        "value_size",
    )

    def __init__(self, frame: memoryview, start: int, end: int, *, is_nested: bool = False) -> None:
        """`frame` must be writable, as memory of compiled code. Messages in a compressed one are nested, and may have any magic."""
        self._data: fields.View = frame
        self._last = end
        self._is_nested = is_nested
        self._tables: message_fields.Tables = message_fields.TABLES
        self.start = start
        self.end = start
        """Where the message begins, and where the next one does."""
        self.offset = 0
        self.crc = 0
        self.magic = 0
        self.attributes = 0
        self.timestamp = NO_TIMESTAMP
        self.key_at = 0
        self.key_size = -1
        self.value_at = 0
        self.value_size = -1
        """Sizes are -1 for null."""

    def advance(self) -> bool:
        """Go to the next message or batch. False if none is complete.

        Raises CorruptRecord for a size that no format allows, InvalidMagic for a magic that never existed.
        """
        data = self._data
        at = self.end
        left = self._last - at
        if left < LOG_OVERHEAD:
            return False
        size = fields.int32(data, at + 8)
        if size < MIN_LEGACY_RECORD_SIZE:
            raise CorruptRecord(f"Record size {size} is less than the minimum record overhead ({MIN_LEGACY_RECORD_SIZE})")
        if left < HEADER_SIZE_UP_TO_MAGIC:
            return False
        magic = fields.int8(data, at + HEADER_SIZE_UP_TO_MAGIC - 1)
        if not self._is_nested and not 0 <= magic <= CURRENT_MAGIC:
            raise InvalidMagic(magic)
        if size > left - LOG_OVERHEAD:
            return False
        self.start = at
        self.end = at + LOG_OVERHEAD + size
        self.offset = fields.int64(data, at)
        self.crc = fields.int32(data, at + LOG_OVERHEAD) & 0xFFFFFFFF
        self.magic = magic
        self.attributes = fields.uint8(data, at + HEADER_SIZE_UP_TO_MAGIC)
        return True

    def check_size(self, most_bytes: int) -> None:
        """Raises MessageTooLarge if the message, with offset and size, has more bytes than that."""
        if self.end - self.start > most_bytes:
            raise MessageTooLarge(self.end - self.start)

    def checksum_is_right(self) -> bool:
        """Whether the checksum of the message fits its bytes."""
        return message_fields.checksum(self._tables, self._data, self.start + LOG_OVERHEAD + 4, self.end) == self.crc

    def check_checksum(self) -> None:
        """Raises CorruptRecord for a wrong checksum."""
        if not self.checksum_is_right():
            raise CorruptRecord(f"the checksum of the message at offset {self.offset} is wrong")

    def codec(self) -> int:
        """The codec of the message. Raises UnknownCompressionCodec if no format has it."""
        codec = self.attributes & CODEC_MASK
        if codec > LAST_CODEC:
            raise UnknownCompressionCodec(codec)
        return codec

    def read_fields(self) -> None:
        """Find timestamp, key and value. Raises MalformedMessage if their sizes contradict that of the message."""
        data = self._data
        end = self.end
        at = self.start + LOG_OVERHEAD + MESSAGE_HEADER_BYTES
        key_at = at + 4
        if self.magic:
            key_at += TIMESTAMP_BYTES
        if end - key_at < 4:
            raise MalformedMessage(f"a message of {end - self.start} bytes is too short")
        self.timestamp = fields.int64(data, at) if self.magic else NO_TIMESTAMP
        key_size = fields.int32(data, key_at - 4)
        value_at = key_at + 4
        if key_size > 0:
            value_at += key_size
        if value_at > end:
            raise MalformedMessage(f"a key of {key_size} bytes where {end - 4 - key_at} remain")
        value_size = fields.int32(data, value_at - 4)
        if value_size > end - value_at:
            raise MalformedMessage(f"a value of {value_size} bytes where {end - value_at} remain")
        self.key_at = key_at
        self.key_size = key_size if key_size >= 0 else -1
        self.value_at = value_at
        self.value_size = value_size if value_size >= 0 else -1
