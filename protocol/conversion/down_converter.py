"""Writes the records of one batch of format 2 as messages of format 0 or 1.

`message_sets` makes one for each batch of a Fetch by an old consumer. `convert` does a part of the work at a time, so that a thread can let
the event loop run in between. No object is made for a record. Headers have no place in a message, and are left out.
"""

from __future__ import annotations

from zlib import crc32

from protocol.conversion.limits import LOG_OVERHEAD, MAX_DECOMPRESSED_BYTES, MESSAGE_OVERHEAD_BYTES, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from protocol.cursors import fields
from protocol.records.batch import BatchHeader
from protocol.records.errors import DecompressionTooLarge, InvalidRecord, MalformedMessage

_STRUCTURE = "Found invalid record structure"


class DownConverter:
    """See the module. `room[:size]` holds the messages after `convert` has returned True.

    Records below `first_offset` are left out. With `is_wrapped` the messages get the offsets of messages in a compressed one: relative to
    the first record in format 1. With `is_produced` the offsets are counted from the base offset, and records with headers are counted.
    """

    __slots__ = (
        "_at",
        "_attributes",
        "_base_offset",
        "_base_timestamp",
        "_data",
        "_end",
        "_first_offset",
        "_frame",
        "_is_produced",
        "_is_relative",
        "_left",
        "_log_append_time",
        "_magic",
        "_view",
        "count",
        "first_written",
        "largest",
        "last_written",
        "max_timestamp",
        "room",
        "size",
        "with_headers",
    )

    def __init__(
        self,
        records: bytearray,
        header: BatchHeader,
        magic: int,
        *,
        first_offset: int = 0,
        is_wrapped: bool = False,
        is_produced: bool = False,
    ) -> None:
        """`records` is the decompressed body of the batch. Raises DecompressionTooLarge if the messages may be larger than the limit."""
        size = len(records) + header.record_count * MESSAGE_OVERHEAD_BYTES[magic]
        if size > MAX_DECOMPRESSED_BYTES:
            raise DecompressionTooLarge("messages of an old format in a", MAX_DECOMPRESSED_BYTES)
        self._frame = memoryview(records)
        self._data = self._frame
        self._at = 0
        self._end = len(records)
        self._left = header.record_count
        self._base_offset = header.base_offset
        self._base_timestamp = header.base_timestamp
        self._attributes = header.attributes & TIMESTAMP_TYPE_MASK if magic else 0
        self._log_append_time = header.max_timestamp
        self._magic = magic
        self._first_offset = first_offset
        self._is_relative = is_wrapped and magic > 0
        self._is_produced = is_produced
        self.room = fields.room_for(max(size, 0))
        self._view = memoryview(self.room)
        self.size = 0
        self.count = 0
        self.first_written = -1
        self.last_written = -1
        """Absolute offsets of the first and the last message."""
        self.max_timestamp = NO_TIMESTAMP
        """The largest timestamp of the messages; -1 in format 0."""
        self.largest = 0
        """Bytes of the largest message."""
        self.with_headers = 0
        """Records with headers, when they are produced."""

    def convert(self, limit: int) -> bool:
        """Convert up to `limit` records. True when all are done. Raises InvalidRecord, MalformedMessage for a negative timestamp."""
        try:
            while limit > 0:
                if self._left <= 0:
                    return True
                limit -= 1
                self._left -= 1
                self._convert_one()
        except fields.FieldError:
            raise InvalidRecord(_STRUCTURE) from None
        return False

    def _convert_one(self) -> None:
        data = self._data
        size, at = fields.varlong(data, self._at)
        if not 0 <= size <= self._end - at:
            raise InvalidRecord(_STRUCTURE)
        end = at + size
        elapsed, at = fields.varlong(data, at + 1)
        delta, at = fields.varlong(data, at)
        key_size, at = fields.varlong(data, at)
        key_at = at
        if key_size > 0:
            if key_size > end - at:
                raise InvalidRecord(_STRUCTURE)
            at += key_size
        value_size, at = fields.varlong(data, at)
        if at >= end or value_size >= end - at:  # the number of headers follows
            raise InvalidRecord(_STRUCTURE)
        self._at = end
        if self._is_produced:
            delta = self.count
            if fields.uint8(data, at + value_size if value_size > 0 else at):
                self.with_headers += 1
        offset = self._base_offset + delta
        if offset < self._first_offset:
            return
        timestamp = self._log_append_time if self._attributes else fields.wrapped_sum(self._base_timestamp, elapsed)
        if timestamp < NO_TIMESTAMP:
            raise MalformedMessage(f"Invalid negative timestamp {timestamp}")
        if not self.count:
            self.first_written = offset
        self.count += 1
        self.last_written = offset
        if self._magic and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self._write(offset - self.first_written if self._is_relative else offset, timestamp, key_at, key_size, at, value_size)

    def _write(self, offset: int, timestamp: int, key_at: int, key_size: int, value_at: int, value_size: int) -> None:
        data = self._data
        room = self.room
        start = self.size
        fields.put_int64(room, start, offset)
        at = start + LOG_OVERHEAD + 4
        fields.put_uint8(room, at, self._magic)
        fields.put_uint8(room, at + 1, self._attributes)
        at += 2
        if self._magic:
            fields.put_int64(room, at, timestamp)
            at += 8
        fields.put_int32(room, at, key_size if key_size >= 0 else -1)
        at += 4
        if key_size > 0:
            at = fields.copy(data, key_at, key_at + key_size, room, at)
        fields.put_int32(room, at, value_size if value_size >= 0 else -1)
        at += 4
        if value_size > 0:
            at = fields.copy(data, value_at, value_at + value_size, room, at)
        self.largest = max(self.largest, at - start)
        fields.put_int32(room, start + 8, at - start - LOG_OVERHEAD)
        checksum = crc32(self._view[start + LOG_OVERHEAD + 4 : at])
        fields.put_int32(room, start + LOG_OVERHEAD, checksum if checksum < 2**31 else checksum - 2**32)
        self.size = at
