"""Writes the records of batches of format 2 as messages of format 0 or 1, one after the other into one buffer.

`message_sets` uses one for the batches of a piece of a Fetch by an old consumer. `begin` takes the next batch. `convert` does a part of its
work at a time, so that a thread can let the event loop run in between. No object is made for a record. Headers have no place in a message,
and are left out.
"""

from __future__ import annotations

from typing import Final, final

from ottla.protocol.conversion import message_fields
from ottla.protocol.conversion.message_fields import MESSAGE_OVERHEAD_BYTES
from ottla.protocol.cursors import fields
from ottla.protocol.records import record_step
from ottla.protocol.records.batch import MIN_RECORD_BYTES, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK, BatchHeader
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from ottla.protocol.records.errors import DecompressionTooLarge, InvalidRecord, MalformedMessage
from ottla.protocol.records.record_step import RECORDS_REMAIN, record_error

HEADERS_SHIFT: Final = 4
"""16 headers are as much work as a record without any."""


@final
class DownConverter:
    """See the module. `room[:size]` holds the messages of all batches.

    With `is_produced` the offsets are counted from the base offset, and records with headers are counted.
    """

    __slots__ = (
        "_at",
        "_attributes",
        "_base_offset",
        "_base_timestamp",
        "_data",
        "_end",
        "_first_offset",
        "_is_produced",
        "_is_relative",
        "_left",
        "_log_append_time",
        "_tables",
        "count",
        "first_written",
        "largest",
        "last_written",
        "magic",
        "max_timestamp",
        "room",
        "size",
        "total",
        "with_headers",
    )

    def __init__(self, magic: int, room_bytes: int = 0, *, is_produced: bool = False) -> None:
        """`room_bytes` is the size of the buffer as long as no batch needs more."""
        self.magic = magic
        self._is_produced = is_produced
        self._is_relative = False
        self._tables: message_fields.Tables = message_fields.TABLES
        self.room = fields.room_for(room_bytes)
        self.size = 0
        self.total = 0
        """Messages of all batches."""
        self.count = 0
        """Messages of this batch."""
        self.first_written = -1
        self.last_written = -1
        """Absolute offsets of the first and the last message of this batch."""
        self.max_timestamp = NO_TIMESTAMP
        """The largest timestamp of the messages of this batch; -1 in format 0."""
        self.largest = 0
        """Bytes of the largest message."""
        self.with_headers = 0
        """Records with headers, when they are produced."""
        self._at = self._end = self._left = 0
        self._attributes = self._base_offset = self._base_timestamp = self._first_offset = self._log_append_time = 0

    def begin(self, records: memoryview, start: int, end: int, header: BatchHeader, first_offset: int, is_wrapped: bool) -> None:
        """Begin with the batch whose decompressed records are `records[start:end]`, which must be writable.

        Records below `first_offset` are left out. With `is_wrapped` the messages get the offsets of messages in a compressed one: relative
        to the first record in format 1.

        Raises DecompressionTooLarge if the messages of the batch may be larger than the limit.
        """
        most = max(min(header.record_count, (end - start) // MIN_RECORD_BYTES), 0)
        size = end - start + most * MESSAGE_OVERHEAD_BYTES[self.magic]
        if size > MAX_DECOMPRESSED_BYTES:
            raise DecompressionTooLarge("messages of an old format in a", MAX_DECOMPRESSED_BYTES)
        self._make_room(size)
        self._data: fields.View = records
        self._at = start
        self._end = end
        self._left = header.record_count
        self._base_offset = header.base_offset
        self._base_timestamp = header.base_timestamp
        self._attributes = header.attributes & TIMESTAMP_TYPE_MASK if self.magic else 0
        self._log_append_time = header.max_timestamp
        self._first_offset = first_offset
        self._is_relative = is_wrapped and self.magic > 0
        self.count = 0
        self.first_written = self.last_written = -1
        self.max_timestamp = NO_TIMESTAMP

    def convert(self, limit: int) -> bool:
        """Convert up to `limit` records; one with many headers counts as several. True when all are done.

        Raises InvalidRecord, MalformedMessage for a negative timestamp.
        """
        while limit > 0:
            if self._left <= 0:
                return True
            self._left -= 1
            limit -= 1 + (self._convert_one() >> HEADERS_SHIFT)
        return False

    def copy(self, frame: memoryview, start: int, end: int) -> None:
        """Append the bytes of `frame[start:end]`, which a reader of the format knows. `frame` must be writable."""
        self._make_room(end - start)
        self._data = frame
        self.size = fields.copy(self._data, start, end, self.room, self.size)

    def replace(self, start: int, message: bytes) -> None:
        """Put a message in the place of those from `start` on."""
        self.size = start
        self._make_room(len(message))
        self.size = fields.put_bytes(self.room, start, message)
        self.largest = len(message)

    def _make_room(self, size: int) -> None:
        if size > len(self.room) - self.size:
            room = fields.room_for(max(self.size + size, len(self.room) * 3 // 2))
            room[: self.size] = memoryview(self.room)[: self.size]
            self.room = room

    def _convert_one(self) -> int:
        """Returns the number of the record's headers."""
        data = self._data
        end, elapsed, delta, _, _, key_at, key_size, value_at, value_size, headers, _ = record_step.read_record(data, self._at, self._end)
        if end < 0:
            raise record_error(end, elapsed, delta)
        self._at = end
        if not self._left and end != self._end:
            raise InvalidRecord(RECORDS_REMAIN)
        if self._is_produced:
            delta = self.count
            self.with_headers += headers > 0
        offset = self._base_offset + delta
        if offset < self._first_offset:
            return headers
        timestamp = self._log_append_time if self._attributes else fields.wrapped_sum(self._base_timestamp, elapsed)
        if timestamp < NO_TIMESTAMP:
            raise MalformedMessage(f"Invalid negative timestamp {timestamp}")
        if not self.count:
            self.first_written = offset
        self.count += 1
        self.total += 1
        self.last_written = offset
        if self.magic and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        start = self.size
        self.size = message_fields.put_message(
            self._tables,
            self.room,
            start,
            offset - self.first_written if self._is_relative else offset,
            self.magic,
            self._attributes,
            timestamp,
            data,
            key_at,
            key_size,
            value_at,
            value_size,
        )
        self.largest = max(self.largest, self.size - start)
        return headers
