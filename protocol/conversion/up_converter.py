"""Copies the messages of a message set (magic 0 or 1) into the body of a record batch of format 2.

`message_sets` makes one for the messages of a request, or for the decompressed messages of a wrapper. `convert` does a part of the work at
a time, so that a thread can let the event loop run in between. No object is made for a message.

Invariant: a record is never longer than the message that it came from, so the room is as large as the input.
"""

from __future__ import annotations

from typing import Final, final

from ottla.protocol.conversion import message_fields
from ottla.protocol.conversion.message_reader import MessageReader
from ottla.protocol.cursors import fields
from ottla.protocol.records.batch import CODEC_MASK, MAX_INT32, NO_TIMESTAMP
from ottla.protocol.records.errors import InvalidRecord

FROM_MESSAGE: Final = -(1 << 63)
"""Stands for the timestamp that each message has itself."""


@final
class UpConverter:
    """See the module. `room[:size]` holds the records after `convert` has returned True.

    `is_wrapped`: the messages were inside a compressed one. Then `timestamp` replaces those of the messages, unless it is FROM_MESSAGE.
    `keeps_offsets` keeps the distances of the offsets; otherwise they are counted from 0.
    """

    __slots__ = (
        "_data",
        "_is_wrapped",
        "_keeps_offsets",
        "_magic",
        "_max_message_bytes",
        "_reader",
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
        self._data: fields.View = frame
        self._reader = MessageReader(frame, start, end, is_nested=is_wrapped)
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
        reader = self._reader
        while limit > 0:
            limit -= 1
            if not reader.advance():
                return True
            if self._examine():
                self._convert_one()
            elif not self._is_wrapped:
                return True  # Apache Kafka checks the messages before it first
        return False

    def _examine(self) -> bool:
        """Whether the message has the magic of the first. Its fields are known then."""
        reader = self._reader
        reader.check_size(self._max_message_bytes)
        is_foreign = reader.magic != self._magic
        if is_foreign and not self._is_wrapped:
            self.foreign += 1  # a batch of format 2 has something else in place of the codec
            return False
        if self._is_wrapped:
            self._refuse_codec()
        if not is_foreign:
            reader.check_checksum()
        self._refuse_codec()
        reader.read_fields()  # Apache Kafka names the sizes in its error about another magic, and fails in another way if it cannot
        if is_foreign:
            self.foreign += 1
        return not is_foreign

    def _refuse_codec(self) -> None:
        """Raise the error of a compressed message; its position determines whether the checksum is verified first."""
        reader = self._reader
        if reader.attributes & CODEC_MASK and reader.codec():
            raise InvalidRecord("Inner messages must not be compressed" if self._is_wrapped else "a compressed message is not the only one")

    def _convert_one(self) -> None:
        reader = self._reader
        timestamp = self._timestamp if self._magic and self._timestamp != FROM_MESSAGE else reader.timestamp
        if reader.key_size < 0:
            self.null_keys += 1
            if self.first_null_key < 0:
                self.first_null_key = self.count
        self._note(reader.offset, timestamp)
        delta = reader.offset - self.first_offset if self._keeps_offsets else self.count
        if not 0 <= delta <= MAX_INT32:
            raise InvalidRecord(f"the offset {reader.offset} of a message is too far from the first, {self.first_offset}")
        self.count += 1
        elapsed = fields.wrapped_sum(timestamp, -self.base_timestamp)
        self.size = message_fields.put_record(
            self.room, self.size, elapsed, delta, self._data, reader.key_at, reader.key_size, reader.value_at, reader.value_size
        )

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
