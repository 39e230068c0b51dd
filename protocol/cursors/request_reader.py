"""Walks the topics and partitions of a request, one element at a time, at their place in the frame.

No object is created for a partition: the attributes of the reader describe the current one. `verify` first walks the whole request, so that
a request with a malformed end has no effect, and then begins again. The codec generated from `ottla.protocol.messages` is the authority:
tests check that both accept the same bytes and read the same values.
"""

from __future__ import annotations

from typing import Final

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.fields import FieldError
from ottla.protocol.schema.wire import MAX_ELEMENTS, InvalidLength, ProtocolError, Truncated, UnexpectedNull, check_replaced, too_many

PARTITION: Final = 1
"""A partition that the request reads or writes."""
FORGOTTEN: Final = 2
"""A partition that a Fetch removes from its session."""
NOTHING: Final = 0
"""An element without a partition to serve, such as a topic without partitions."""
END: Final = -1
UUID_BYTES: Final = 16
"""Length of a topic id."""
NO_FRAME: Final = memoryview(bytearray(1))
"""In place of a frame, or another buffer, that is no longer needed."""
NO_RECORDS: Final = -1
"""The `start` of a partition whose records are null."""


class RequestReader:
    """Base of the readers of Produce, Fetch and OffsetCommit requests, and of answers to Fetch. Subclasses know the layout of a partition.

    `frame` is writable and ends with the request. `data` is the same memory.
    """

    __slots__ = (
        "_allowed",
        "_first_at",
        "_first_topics",
        "_is_in_topic",
        "_section",
        "at",
        "data",
        "frame",
        "index",
        "is_flexible",
        "is_verified",
        "partitions_left",
        "size",
        "topic",
        "topics_left",
        "version",
    )

    def _begin(self, frame: memoryview, offset: int, version: int, is_flexible: bool) -> None:
        """Read up to the first topic. Called at the end of `__init__`. `offset` is the start of the body. Raises ProtocolError.

        In C it costs a third of `RequestReader.__init__`, which would get its arguments as objects in a tuple.
        """
        self.frame = frame
        self.data: fields.View = frame
        self.size = len(frame)
        self.at = offset
        self.version = version
        self.is_flexible = is_flexible
        self.is_verified = False
        self.topic = b""
        self.index = -1
        self.partitions_left = 0
        self._allowed = MAX_ELEMENTS
        self._is_in_topic = False
        self._section = PARTITION
        try:
            self._read_head()
            self.topics_left = self._count()
        except FieldError as error:
            raise self._cut_off(error) from None
        self._first_at = self.at
        self._first_topics = self.topics_left

    def verify(self, limit: int) -> bool:
        """Read up to `limit` elements, and begin again after the last one. True once the whole request was read and is well-formed.

        From then on the fields after the partitions are known. Raises ProtocolError.
        """
        for _ in range(limit):
            if self.advance() == END:
                self.begin_again()
                return True
        return False

    def advance(self) -> int:
        """Move to the next element: PARTITION, FORGOTTEN, NOTHING or END. Raises ProtocolError."""
        try:
            if not self.partitions_left:
                if self._is_in_topic:
                    self._is_in_topic = False
                    if self.is_flexible:
                        self.at = self._skip_tagged_fields(self.at)
                if self.topics_left:
                    self.topics_left -= 1
                    self._read_topic()
                    self.partitions_left = self._count()
                    self._is_in_topic = True
                    if not self.partitions_left:
                        return NOTHING
                elif self._section == END:
                    return END
                else:
                    self._section = self._end_section()
                    return END if self._section == END else NOTHING
            self.partitions_left -= 1
            return self._read_partition() if self._section == PARTITION else self._read_forgotten()
        except FieldError as error:
            raise self._cut_off(error) from None

    def detach(self) -> None:
        """Continue in a copy of the frame, because the buffer of the frame is used again."""
        self.frame = memoryview(bytearray(self.frame))
        self.data = self.frame

    def forget_frame(self) -> None:
        """Let go of the frame, of which nothing more is read."""
        self.frame = NO_FRAME
        self.data = NO_FRAME

    # -- differences between the requests --------------------------------------------------------------------------------

    def _read_head(self) -> None:
        """Read the fields before the topics."""
        raise NotImplementedError

    def _read_topic(self) -> None:
        """Read the name or id of a topic."""
        self.topic = self._string()

    def _topic_id(self) -> bytes:
        end = self.at + UUID_BYTES
        found = fields.take(self.data, self.at, end)
        self.at = end
        return found

    def _read_partition(self) -> int:
        """Read a partition. Returns PARTITION, or NOTHING when the partition should be skipped."""
        raise NotImplementedError

    def _read_forgotten(self) -> int:
        raise NotImplementedError

    def _end_section(self) -> int:
        """Read the fields after the topics. Returns END, or the kind of the partitions that follow."""
        if self.is_flexible:
            self.at = self._skip_tagged_fields(self.at)
        return END

    # -- fields ----------------------------------------------------------------------------------------------------------

    def begin_again(self) -> None:
        """Go back to before the first element."""
        self.is_verified = True
        self.at = self._first_at
        self.topics_left = self._first_topics
        self._section = PARTITION
        self._allowed = MAX_ELEMENTS

    def _count(self) -> int:
        """The number of elements of an array, within the limit for all arrays and tagged fields together."""
        if self.is_flexible:
            count, self.at = fields.uvarint(self.data, self.at)
            count -= 1
        else:
            count = fields.int32(self.data, self.at)
            self.at += 4
        if count < 0:
            raise UnexpectedNull("an array is null, which this version does not allow")
        if count > self.size - self.at:
            raise InvalidLength(f"an array of {count} elements where {self.size - self.at} bytes are left")
        self._allowed -= count
        if self._allowed < 0:
            raise too_many(f"an array of {count}")
        return count

    def _nullable_string(self) -> bytes | None:
        """A string in UTF-8. As in Java, U+FFFD replaces invalid bytes."""
        data = self.data
        if self.is_flexible:
            size, at = fields.uvarint(data, self.at)
            size -= 1
            if size > 0x7FFF:
                raise InvalidLength(f"a string of {size} bytes")
        else:
            size = fields.int16(data, self.at)
            at = self.at + 2
        self.at = at
        if size <= 0:
            return None if size < 0 else b""
        self.at = at + size
        value = fields.take(data, at, at + size)
        if value.isascii():
            return value
        text = value.decode("utf-8", "replace")
        check_replaced("a string", text)
        return text.encode()

    def _string(self) -> bytes:
        value = self._nullable_string()
        if value is None:
            raise UnexpectedNull("a string is null, which this version does not allow")
        return value

    def _skip_tagged_fields(self, at: int) -> int:
        """The position after a section of tagged fields, whose contents are ignored."""
        count, at = fields.uvarint(self.data, at)
        for _ in range(count):
            _, _, at = self._begin_tagged_field(at)
        return at

    def _begin_tagged_field(self, at: int) -> tuple[int, int, int]:
        """(tag, position of the field, position after it). The fields count like elements of arrays."""
        self._allowed -= 1
        if self._allowed < 0:
            raise too_many("tagged fields")
        tag, at = fields.uvarint(self.data, at)
        size, at = fields.uvarint(self.data, at)
        if size > self.size - at:
            raise InvalidLength(f"a tagged field of {size} bytes where {self.size - at} are left")
        return tag, at, at + size

    def _cut_off(self, error: Exception) -> ProtocolError:
        return Truncated(f"{type(self).__name__} version {self.version}: {error}")
