"""Copies the messages of a message set (magic 0 or 1) into the body of a record batch of format 2.

`message_sets` makes one for the messages of a request, or for the decompressed messages of a wrapper. `convert` does a part of the work at
a time, so that a thread can let the event loop run in between. No object is made for a message.

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 | timestamp int64 (magic 1) | key length int32, bytes | value
    length int32, bytes

Invariant: a record is never longer than the message that it came from, so the room is as large as the input.
"""

from __future__ import annotations

from zlib import crc32

from protocol.conversion.limits import (
    CODEC_MASK,
    CURRENT_MAGIC,
    FROM_MESSAGE,
    LAST_CODEC,
    LOG_OVERHEAD,
    MAX_INT32,
    MESSAGE_HEADER_BYTES,
    MIN_MESSAGE_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_BYTES,
    UP_TO_MAGIC_BYTES,
)
from protocol.cursors import fields
from protocol.records.errors import (
    CorruptRecord,
    InvalidMagic,
    InvalidRecord,
    MalformedMessage,
    MessageTooLarge,
    UnknownCompressionCodec,
)


class UpConverter:
    """See the module. `room[:size]` holds the records after `convert` has returned True.

    `is_wrapped` tells that the messages lay in a compressed one. Then `timestamp` replaces those of the messages, unless it
    is FROM_MESSAGE.
    `keeps_offsets` keeps the distances of the offsets; otherwise they are counted from 0.
    """

    __slots__ = (
        "_at",
        "_data",
        "_end",
        "_frame",
        "_is_wrapped",
        "_keeps_offsets",
        "_magic",
        "_max_message_bytes",
        "_timestamp",
        "base_timestamp",
        "count",
        "first_null_key",
        "first_offset",
        "foreign",
        "last_offset",
        "max_timestamp",
        "min_timestamp",
        "null_keys",
        "room",
        "size",
        "untimed",
    )

    def __init__(
        self,
        frame: memoryview,
        start: int,
        end: int,
        magic: int,
        *,
        is_wrapped: bool = False,
        timestamp: int = FROM_MESSAGE,
        keeps_offsets: bool = False,
        max_message_bytes: int = MAX_INT32,
    ) -> None:
        """`frame` must be writable, as memory of compiled code."""
        self._frame = frame
        self._data = frame
        self._at = start
        self._end = end
        self._magic = magic
        self._is_wrapped = is_wrapped
        self._timestamp = timestamp
        self._keeps_offsets = keeps_offsets
        self._max_message_bytes = max_message_bytes
        self.room = fields.room_for(end - start)
        self.size = 0
        self.count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.min_timestamp = NO_TIMESTAMP
        """The smallest timestamp of the messages that have one; -1 if none has."""
        self.first_offset = -1
        self.last_offset = -1
        """The offsets of the first and the last message, as they were written in it."""
        self.untimed = 0
        """Messages without a timestamp."""
        self.null_keys = 0
        self.first_null_key = -1
        self.foreign = 0
        """Messages of another magic than the first, which are left out."""

    def convert(self, limit: int) -> bool:
        """Convert up to `limit` messages. True when all are done. An incomplete message at the end is left out, as in Apache Kafka.

        Raises CorruptRecord for a wrong checksum or size, InvalidRecord for a compressed message, MalformedMessage, MessageTooLarge,
        UnknownCompressionCodec.
        """
        data = self._data
        while limit > 0:
            limit -= 1
            at = self._at
            left = self._end - at
            if left < LOG_OVERHEAD:
                return True
            size = fields.int32(data, at + 8)
            if size < MIN_MESSAGE_BYTES:
                raise CorruptRecord(f"Record size is less than the minimum record overhead ({MIN_MESSAGE_BYTES})")
            if left < UP_TO_MAGIC_BYTES:
                return True
            magic = fields.int8(data, at + LOG_OVERHEAD + 4)
            if not self._is_wrapped and not 0 <= magic <= CURRENT_MAGIC:
                raise InvalidMagic(magic)
            if size > left - LOG_OVERHEAD:
                return True
            if size > self._max_message_bytes - LOG_OVERHEAD:
                raise MessageTooLarge(size + LOG_OVERHEAD)
            self._at = at + LOG_OVERHEAD + size
            self._convert_one(fields.int64(data, at), at + LOG_OVERHEAD, self._at, magic)
            if self.foreign and not self._is_wrapped:
                return True  # Apache Kafka checks the messages before it first
        return False

    def _convert_one(self, offset: int, at: int, end: int, magic: int) -> None:
        """Convert the message that begins with its checksum at `at`."""
        data = self._data
        codec = fields.uint8(data, at + 5) & CODEC_MASK
        if magic != self._magic and not self._is_wrapped:
            self.foreign += 1  # a batch of format 2 has something else in place of the codec
            return
        if codec and self._is_wrapped:
            self._refuse(codec)
        if magic != self._magic:
            self._check_sizes(at, end, magic)
            self.foreign += 1
            return
        if crc32(self._frame[at + 4 : end]) != fields.int32(data, at) & 0xFFFFFFFF:
            raise CorruptRecord(f"the checksum of the message at offset {offset} is wrong")
        if codec:
            self._refuse(codec)
        timestamp = NO_TIMESTAMP
        key_at = at + MESSAGE_HEADER_BYTES
        if magic:
            key_at += TIMESTAMP_BYTES
            timestamp = self._timestamp
        if end - key_at < 8:
            raise MalformedMessage(f"a message of {end - at} bytes is too short")
        if magic and timestamp == FROM_MESSAGE:
            timestamp = fields.int64(data, at + MESSAGE_HEADER_BYTES)
        key_size = fields.int32(data, key_at)
        key_at += 4
        key_end = key_at + key_size if key_size > 0 else key_at
        if key_end > end - 4:
            raise MalformedMessage(f"a key of {key_size} bytes where {end - 4 - key_at} remain")
        value_size = fields.int32(data, key_end)
        value_at = key_end + 4
        value_end = value_at + value_size if value_size > 0 else value_at
        if value_end > end:
            raise MalformedMessage(f"a value of {value_size} bytes where {end - value_at} remain")
        if key_size < 0:
            key_size = -1
            self.null_keys += 1
            if self.first_null_key < 0:
                self.first_null_key = self.count
        if value_size < 0:
            value_size = -1
        self._note(offset, timestamp)
        delta = offset - self.first_offset if self._keeps_offsets else self.count
        if not 0 <= delta <= MAX_INT32:
            raise InvalidRecord(f"the offset {offset} of a message is too far from the first, {self.first_offset}")
        self.count += 1
        elapsed = fields.wrapped_sum(timestamp, -self.base_timestamp)
        room = self.room
        to = self.size
        size = fields.varlong_size(elapsed) + fields.varlong_size(delta) + fields.varlong_size(key_size) + fields.varlong_size(value_size)
        to = fields.put_varlong(room, to, 2 + size + key_end - key_at + value_end - value_at)
        fields.put_uint8(room, to, 0)
        to = fields.put_varlong(room, to + 1, elapsed)
        to = fields.put_varlong(room, to, delta)
        to = fields.put_varlong(room, to, key_size)
        to = fields.copy(data, key_at, key_end, room, to)
        to = fields.put_varlong(room, to, value_size)
        to = fields.copy(data, value_at, value_end, room, to)
        fields.put_uint8(room, to, 0)
        self.size = to + 1

    def _check_sizes(self, at: int, end: int, magic: int) -> None:
        """Raise MalformedMessage if key and value are not where they are in messages of this magic.

        Apache Kafka names their sizes in its error about a message of another magic, and fails in another way if it cannot.
        """
        data = self._data
        at += MESSAGE_HEADER_BYTES + (TIMESTAMP_BYTES if magic else 0)
        for _ in range(2):
            size = fields.int32(data, at) if at <= end - 4 else end
            at += 4 + max(size, 0)
            if at > end:
                raise MalformedMessage(f"a message of magic {magic} has no key and value")

    def _refuse(self, codec: int) -> None:
        """Raise the error of a compressed message; its place decides whether the checksum is looked at before."""
        if codec > LAST_CODEC:
            raise UnknownCompressionCodec(codec)
        raise InvalidRecord("Inner messages must not be compressed" if self._is_wrapped else "a compressed message is not the only one")

    def _note(self, offset: int, timestamp: int) -> None:
        if not self.count:
            self.first_offset = offset
            self.base_timestamp = timestamp
        self.last_offset = offset
        if timestamp == NO_TIMESTAMP:
            self.untimed += 1
            return
        if self.min_timestamp == NO_TIMESTAMP or timestamp < self.min_timestamp:
            self.min_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
