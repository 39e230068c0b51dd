"""Writes messages and records, one call for each, and computes the checksum of messages.

`message_fields.pxd` has the same functions in C for compiled callers, as `ottla.protocol.cursors.fields` has. Called by the converters and
by the reader of messages.

A message of format 0 or 1 has a CRC-32 of its own. For 126 bytes `zlib.crc32` takes 180 ns: 111 for the checksum, since zlib is made for
long ones. The rest is for a slice, a call and a number, which are objects. The loop in C takes 46 ns. From 2 KiB on zlib is faster: 4.1 µs
for 16 KiB, where the loop takes 6.0.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, TypeAlias
from zlib import crc32

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.fields import Bytes

MESSAGE_OVERHEAD_BYTES: Final = (26, 34)
"""Bytes of a message without key and value, with its offset and size; by magic."""

_POLYNOMIAL: Final = 0xEDB88320
_SLICES: Final = 16
_START: Final = Struct(">qiIbB")  # offset, size, checksum, magic, attributes
_CHECKSUM: Final = Struct(">I")
_CHECKSUM_AT: Final = 12
_COVERED_AT: Final = 16
"""Offset of the first byte that the checksum covers."""


def _tables() -> array[int]:
    """For each byte, and each of sixteen places of it, the checksum that it contributes to, as C needs it."""
    numbers = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        numbers.append(crc)
    for at in range((_SLICES - 1) * 256):
        numbers.append(numbers[at] >> 8 ^ numbers[numbers[at] & 0xFF])
    return array("I", numbers)


Tables: TypeAlias = "array[int]"
TABLES: Final = _tables()
"""For the functions that compute checksums."""


def checksum(tables: array[int], data: Bytes, start: int, end: int) -> int:
    """The CRC-32 of the bytes from `start` up to `end`."""
    return crc32(memoryview(data)[start:end])


def put_message(
    tables: array[int],
    room: bytearray,
    at: int,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    data: Bytes,
    key_at: int,
    key_size: int,
    value_at: int,
    value_size: int,
) -> int:
    """Write a message with the key and the value at these places of `data`; a negative size is null. Returns the position after it."""
    end = at + MESSAGE_OVERHEAD_BYTES[magic] + max(key_size, 0) + max(value_size, 0)
    if end > len(room):
        raise IndexError(f"no room for {end - at} bytes")
    _START.pack_into(room, at, offset, end - at - _CHECKSUM_AT, 0, magic, attributes)
    to = at + _START.size
    if magic:
        fields.put_int64(room, to, timestamp)
        to += 8
    for size, start in ((key_size, key_at), (value_size, value_at)):
        fields.put_int32(room, to, max(size, -1))
        to = fields.copy(data, start, start + max(size, 0), room, to + 4)
    _CHECKSUM.pack_into(room, at + _CHECKSUM_AT, checksum(tables, room, at + _COVERED_AT, end))
    return end


def put_record(
    room: bytearray, at: int, elapsed: int, delta: int, data: Bytes, key_at: int, key_size: int, value_at: int, value_size: int
) -> int:
    """Write a record with the key and the value at these places of `data`; the size of null is -1. Returns the position after it."""
    numbers = (elapsed, delta, key_size, value_size)
    at = _put_varlong(room, at, 2 + sum(map(_varlong_size, numbers)) + max(key_size, 0) + max(value_size, 0))
    room[at] = 0
    at = _put_varlong(room, at + 1, elapsed)
    at = _put_varlong(room, at, delta)
    for size, start in ((key_size, key_at), (value_size, value_at)):
        at = _put_varlong(room, at, size)
        at = fields.copy(data, start, start + max(size, 0), room, at)
    room[at] = 0
    return at + 1


def _zigzag(value: int) -> int:
    return ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF


def _varlong_size(value: int) -> int:
    return max((_zigzag(value).bit_length() + 6) // 7, 1)


def _put_varlong(room: bytearray, at: int, value: int) -> int:
    """Write a number of up to 64 bits as a zigzag varint. Returns the position after it."""
    return fields.put_uvarint(room, at, _zigzag(value))  # in Python it takes numbers of any size
