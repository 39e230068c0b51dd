"""Builds and reads message sets of formats 0 and 1, without the code under test."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from ottla.protocol.records.compression import CompressionCodec, compress, decompress

LOG_APPEND_TIME = 0x08


class Old(NamedTuple):
    """A message as a client sees it. The timestamp of format 0 is -1."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(magic: int, old: Old, attributes: int = 0, crc: int | None = None) -> bytes:
    """One message, with its offset and size."""
    body = struct.pack(">bB", magic, attributes)
    if magic:
        body += struct.pack(">q", old.timestamp)
    body += sized(old.key) + sized(old.value)
    checksum = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", old.offset, len(body) + 4, checksum) + body


def messages(magic: int, olds: list[Old], attributes: int = 0) -> bytes:
    """Messages one behind the other, not compressed."""
    return b"".join(message(magic, old, attributes) for old in olds)


def wrapped(magic: int, codec: int, olds: list[Old], offset: int | None = None, attributes: int = 0, timestamp: int | None = None) -> bytes:
    """The messages in a compressed one. With magic 1 their offsets are written relative to the first; `offset` is the outer one."""
    inner = [old._replace(offset=old.offset - olds[0].offset) for old in olds] if magic else olds
    value = compress(codec, messages(magic, inner, attributes))
    if codec == CompressionCodec.LZ4 and magic == 0:
        value = value[:6] + b"\x00" + value[7:]  # any checksum but the right one, 0x82: readers of format 0 do not look at it
    latest = max(old.timestamp for old in olds) if timestamp is None else timestamp
    outer = Old(olds[-1].offset if offset is None else offset, latest, None, value)
    return message(magic, outer, attributes | codec)


def read(data: bytes) -> list[Old]:
    """The complete messages in a message set, also those in compressed ones, with absolute offsets."""
    data = bytes(data)
    found: list[Old] = []
    at = 0
    while len(data) - at >= 12:
        offset, size = struct.unpack_from(">qi", data, at)
        if size > len(data) - at - 12:
            break
        found += read_one(offset, data[at + 12 : at + 12 + size])
        at += 12 + size
    return found


def read_one(offset: int, body: bytes) -> list[Old]:
    crc, magic, attributes = struct.unpack_from(">IbB", body)
    assert crc == zlib.crc32(body[4:])
    assert magic in (0, 1)
    at = 6
    timestamp = -1
    if magic:
        (timestamp,) = struct.unpack_from(">q", body, at)
        at += 8
    key, at = unsized(body, at)
    value, at = unsized(body, at)
    assert at == len(body)
    codec = attributes & 7
    if not codec:
        return [Old(offset, timestamp, key, value)]
    assert key is None
    assert value is not None
    if codec == CompressionCodec.LZ4 and magic == 0:
        value = value[:6] + b"\x82" + value[7:]
    inner = read(decompress(codec, value))
    if magic:
        base = offset - inner[-1].offset
        inner = [old._replace(offset=base + old.offset) for old in inner]
        if attributes & LOG_APPEND_TIME:
            inner = [old._replace(timestamp=timestamp) for old in inner]
    return inner


def unsized(body: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", body, at)
    at += 4
    return (None, at) if size < 0 else (body[at : at + size], at + size)
