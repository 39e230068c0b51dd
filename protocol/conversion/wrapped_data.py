"""Compresses and decompresses the messages in a compressed message of format 0 or 1.

The framing is that of record batches, except for lz4 in format 0. There the checksum in the header of the frame covers the magic number,
too, because the first Java clients computed it so (KIP-57). Readers of format 0 ignore this checksum, and writers write the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.protocol.records.batch import Buffer
from ottla.protocol.records.compression import CompressionCodec, compress, decompressed

_LZ4_DESCRIPTOR_AT: Final = 4  # behind the magic number of a frame
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_SIZE_BYTES: Final = 8
_LZ4_DICTIONARY: Final = 0x01
_LZ4_DICTIONARY_BYTES: Final = 4

_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1
_MASK: Final = 0xFFFFFFFF


def decompressed_messages(codec: int, magic: int, data: Buffer, max_bytes: int) -> Iterator[bytes]:
    """The messages in a compressed message in pieces, at most `max_bytes`. Raises the errors of `decompressed`."""
    if codec == CompressionCodec.LZ4 and magic == 0:
        data = _with_checksum(data, _LZ4_DESCRIPTOR_AT)
    return decompressed(codec, data, max_bytes)


def compress_messages(codec: int, magic: int, data: Buffer, level: int | None = None) -> Buffer:
    """The messages as the value of a compressed message. Raises UnknownCompressionCodec."""
    compressed = compress(codec, data, level)
    return _with_checksum(compressed, 0) if codec == CompressionCodec.LZ4 and magic == 0 else compressed


def _with_checksum(frame: Buffer, start: int) -> Buffer:
    """The lz4 frame with a checksum of its header from `start` on. Unchanged if it is too short to have one."""
    at = _LZ4_DESCRIPTOR_AT + 2
    if len(frame) > at:
        flags = frame[_LZ4_DESCRIPTOR_AT]
        at += _LZ4_CONTENT_SIZE_BYTES if flags & _LZ4_CONTENT_SIZE else 0
        at += _LZ4_DICTIONARY_BYTES if flags & _LZ4_DICTIONARY else 0
    if len(frame) <= at:
        return frame
    changed = bytearray(frame)
    changed[at] = _short_xxh32(bytes(frame[start:at])) >> 8 & 0xFF
    return changed


def _short_xxh32(data: bytes) -> int:
    """The xxHash32 with seed 0. At least 16 bytes would need another loop; a frame's header has at most 18, with a dictionary."""
    if len(data) >= 16:
        return _long_xxh32(data)
    return _finish(data, 0, _PRIME_5 + len(data))


def _long_xxh32(data: bytes) -> int:
    lanes = [_PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1]
    for lane in range(4):
        word = int.from_bytes(data[4 * lane : 4 * lane + 4], "little")
        lanes[lane] = _rotated(lanes[lane] + word * _PRIME_2 & _MASK, 13) * _PRIME_1 & _MASK
    total = sum(_rotated(lane, shift) for lane, shift in zip(lanes, (1, 7, 12, 18), strict=True))
    return _finish(data, 16, total + len(data))


def _finish(data: bytes, at: int, total: int) -> int:
    while at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        total = _rotated(total + word * _PRIME_3 & _MASK, 17) * _PRIME_4 & _MASK
        at += 4
    for byte in data[at:]:
        total = _rotated(total + byte * _PRIME_5 & _MASK, 11) * _PRIME_1 & _MASK
    total &= _MASK
    total = (total ^ total >> 15) * _PRIME_2 & _MASK
    total = (total ^ total >> 13) * _PRIME_3 & _MASK
    return total ^ total >> 16


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _MASK
