"""Reads heartbeats of consumer groups that name nothing but the member and its epoch, and writes their answers.

Nearly all heartbeats are such. The codec generated from `ottla.protocol.messages` reads all others, and is the authority: tests check that
both read the same, and write the same bytes.
"""

from __future__ import annotations

from typing import Final, final

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.fields import FieldError

_SAME: Final = (b"\0\xff\xff\xff\xff\0\0\0\0", b"\0\xff\xff\xff\xff\0\0\0\0\0")
"""By version, the fields after the instance id when they are null or -1, and no tagged fields."""
_LONGEST: Final = 0x7FFF
_FIXED_BYTES: Final = 27
"""Most bytes of an answer without the member id."""


@final
class PlainHeartbeat:
    """A ConsumerGroupHeartbeat; `is_plain` says whether it names nothing else. The other attributes have no meaning if it does."""

    __slots__ = ("_at", "_data", "epoch", "group_id", "instance_id", "is_plain", "member_id")

    def __init__(self, frame: memoryview, offset: int, version: int) -> None:
        """`offset` is the start of the body."""
        self._data: fields.View = frame
        self._at = offset
        self.group_id = self.member_id = b""
        self.instance_id: bytes | None = None
        self.epoch = 0
        try:
            self.is_plain = self._read(version)
        except FieldError:
            self.is_plain = False  # the codec says what is wrong

    def _read(self, version: int) -> bool:
        group_id, member_id = self._string(), self._string()
        if group_id is None or member_id is None:
            return False
        self.group_id, self.member_id = group_id, member_id
        self.epoch = fields.int32(self._data, self._at)
        self._at += 4
        self.instance_id = self._string()
        rest = _SAME[version]
        return self.epoch > 0 and fields.holds(self._data, self._at, self._at + len(rest), rest)

    def _string(self) -> bytes | None:
        """A string in ASCII. Raises ValueError for another one, which the codec may replace or refuse."""
        size, at = fields.uvarint(self._data, self._at)
        size -= 1
        if size > _LONGEST:
            raise ValueError(size)
        if size < 0:
            self._at = at
            return None
        self._at = at + size
        found = fields.take(self._data, at, at + size)
        if not found.isascii():
            raise ValueError(found)
        return found


def plain_answer(
    correlation_id: int, throttle_time_ms: int, error_code: int, member_id: bytes | None, epoch: int, interval_ms: int
) -> bytes:
    """The response header and the response without a message and an assignment."""
    known = b"" if member_id is None else member_id
    room = fields.room_for(_FIXED_BYTES + len(known))
    fields.put_int32(room, 0, correlation_id)
    fields.put_bytes(room, 4, b"\0")
    fields.put_int32(room, 5, throttle_time_ms)
    fields.put_int16(room, 9, error_code)
    fields.put_bytes(room, 11, b"\0")
    at = fields.put_uvarint(room, 12, 0 if member_id is None else len(known) + 1)
    at = fields.put_bytes(room, at, known)
    fields.put_int32(room, at, epoch)
    fields.put_int32(room, at + 4, interval_ms)
    at = fields.put_bytes(room, at + 8, b"\xff\0")
    return fields.cut(room, 0, at)
