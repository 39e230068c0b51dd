"""Reads and writes groups of big-endian fields, one call for each group.

`fields.pxd` has the same functions in C for compiled callers. Readers take the frame and a position in it. They raise FieldError when the
frame ends too early or a number is malformed. Writers take the buffer of a response, which must be large enough.
"""

import struct
from struct import Struct
from typing import Final, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview
View: TypeAlias = memoryview
"""Writable memory; for compiled code, as for Bytes, without a look at an object for each byte."""
FieldError: Final = (struct.error, IndexError, ValueError)

_int8 = Struct(">b").unpack_from
_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from
_int64 = Struct(">q").unpack_from

read_request_header = Struct(">iih").unpack_from
"""Start of every request: (API key and version as one number, correlation id, length of the client id)."""
read_acks_and_timeout = Struct(">hi").unpack_from
"""(acks, timeout_ms)"""
read_asked = Struct(">iqi").unpack_from
"""A partition of a Fetch before version 5: (index, fetch offset, max bytes)."""
read_asked_with_start = Struct(">iqqi").unpack_from
"""From version 5: (index, fetch offset, log start offset, max bytes)."""
read_asked_in_epoch = Struct(">iiqqi").unpack_from
"""From version 9: (index, current leader epoch, fetch offset, log start offset, max bytes)."""
read_asked_after_epoch = Struct(">iiqiqi").unpack_from
"""From version 12: (index, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes)."""
read_answered = Struct(">ihqqq").unpack_from
"""A partition in the answer to a Fetch from version 5: (index, error code, high watermark, last stable offset, log start offset)."""
read_commit = Struct(">iq").unpack_from
"""A partition of an OffsetCommit: (index, offset)."""
read_commit_with_time = Struct(">iqq").unpack_from
"""In version 1: (index, offset, commit timestamp)."""
read_commit_in_epoch = Struct(">iqi").unpack_from
"""From version 6: (index, offset, leader epoch)."""
read_batch_header = Struct(">qiibIhiqqqhii").unpack_from
"""Header of a record batch: (base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
producer id, producer epoch, base sequence, record count)."""

read_entry = Struct(">ii").unpack_from
"""Entry of a read-only index in memory: two numbers of four bytes."""
read_new_entry = read_entry
"""Entry of an index that may grow: two numbers of four bytes."""
read_batch_bounds = Struct(">qi4xb6xi").unpack_from
"""Part of the header of a record batch in `bytes`: (base offset, length, magic, last offset delta)."""

stamp = Struct(">qii").pack_into
"""Writes base offset, length and leader epoch into a batch of the frame. One call, although the length, between both, stays as it is."""

pack_two_int32 = Struct(">ii").pack
"""An entry of an offset index."""
pack_int64_int32 = Struct(">qi").pack
"""An entry of a time index."""

put_int16 = Struct(">h").pack_into
put_int32 = Struct(">i").pack_into
put_int64 = Struct(">q").pack_into
put_partition = Struct(">ihqqq").pack_into
"""Writes index, error code and three offsets or times."""
put_code = Struct(">ihx").pack_into
"""Writes index, error code and an empty section of tagged fields."""
put_two_int64 = Struct(">qq").pack_into


def uint8(data: Bytes, at: int) -> int:
    """An unsigned number of one byte."""
    return data[at]


def int8(data: Bytes, at: int) -> int:
    """A signed number of one byte."""
    value: int = _int8(data, at)[0]
    return value


def int16(data: Bytes, at: int) -> int:
    """A signed number of two bytes."""
    value: int = _int16(data, at)[0]
    return value


def int32(data: Bytes, at: int) -> int:
    """A signed number of four bytes."""
    value: int = _int32(data, at)[0]
    return value


def read_number(data: Bytes, at: int) -> int:
    """A signed number of four bytes in a read-only index in memory."""
    value: int = _int32(data, at)[0]
    return value


read_new_number = read_number
"""A signed number of four bytes in an index that may grow."""


def read_long(data: Bytes, at: int) -> int:
    """A signed number of eight bytes in a read-only index in memory."""
    value: int = _int64(data, at)[0]
    return value


def int64(data: Bytes, at: int) -> int:
    """A signed number of eight bytes."""
    value: int = _int64(data, at)[0]
    return value


def uvarint(data: Bytes, at: int) -> tuple[int, int]:
    """(number, position after it) of a varint of at most five bytes. Bits beyond 32 are dropped, as Java's int shift does."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, at
        shift += 7
    raise ValueError("a varint is longer than five bytes")


def wrapped_sum(number: int, other: int) -> int:
    """The sum, wrapped to 64 bits as in Java."""
    return (number + other + 2**63) % 2**64 - 2**63


def holds(data: Bytes, at: int, end: int, value: bytes) -> bool:
    """Whether the bytes from `at` up to `end` equal `value`."""
    return data[at:end] == value


def take(data: Bytes, at: int, end: int) -> bytes:
    """A copy of the bytes from `at` up to `end`."""
    if not 0 <= at <= end <= len(data):
        raise IndexError(f"the bytes {at} to {end} of a frame of {len(data)}")
    return bytes(data[at:end])


def put_uvarint(room: bytearray, at: int, value: int) -> int:
    """Write a number of up to 32 bits as a varint. Returns the position after it."""
    while value > 0x7F:
        room[at] = value & 0x7F | 0x80
        at += 1
        value >>= 7
    room[at] = value
    return at + 1


def put_bytes(room: bytearray, at: int, value: bytes) -> int:
    """Write the bytes unchanged. Returns the position after them."""
    end = at + len(value)
    room[at:end] = value
    return end


def copy(data: Bytes, start: int, end: int, room: bytearray, at: int) -> int:
    """Copy the bytes from `start` up to `end` into `room`. Returns the position after them."""
    if not 0 <= start <= end <= len(data) or at + end - start > len(room):
        raise IndexError(f"the bytes {start} to {end} of a frame of {len(data)}")
    room[at : at + end - start] = data[start:end]
    return at + end - start


room_for = bytearray
"""A buffer of that many bytes with arbitrary contents, all of which the caller overwrites."""


def widen(room: bytearray, size: int) -> None:
    """Make the buffer larger; the rest has arbitrary contents. Compiled, large memory is not copied."""
    room.extend(bytes(size - len(room)))


def cut(room: bytearray, start: int, end: int) -> bytes:
    """A copy of the bytes written from `start` up to `end`."""
    return bytes(memoryview(room)[start:end])
