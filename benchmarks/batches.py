"""Record batches (magic 2), built without the package under test: an encoder of its own cannot share a bug with the broker."""

import random
import struct
from collections.abc import Sequence
from typing import Literal

import crc32c
import lz4.frame

Codec = Literal["none", "lz4"]
_CODEC_BITS = {"none": 0, "lz4": 3}
_AFTER_CRC = struct.Struct(">hiqqqhii")
_WORDS = ("amount", "city", "currency", "customer", "delivered", "order", "payment", "pending", "price", "quantity", "region", "shipped")


def varint(number: int) -> bytes:
    """A zigzag varint, as records use it."""
    return uvarint((number << 1) ^ (number >> 63))


def uvarint(number: int) -> bytes:
    """An unsigned varint, as compact lengths use it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def record_batch(values: Sequence[bytes], timestamp_ms: int, codec: Codec = "none") -> bytes:
    """One batch of records without keys and headers, all of one timestamp, from no idempotent producer."""
    body = bytearray()
    for delta, value in enumerate(values):
        record = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        body += varint(len(record)) + record
    if codec == "lz4":
        body = bytearray(lz4.frame.compress(bytes(body), block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False))
    count = len(values)
    after_crc = _AFTER_CRC.pack(_CODEC_BITS[codec], count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, 4 + 1 + 4 + len(after_crc), -1, 2, crc32c.crc32c(after_crc)) + after_crc


def values_like_text(count: int, size: int, seed: int) -> list[bytes]:
    """That many values of exactly `size` bytes that compress about as event data does: known words, changing digits."""
    chosen = random.Random(seed)
    values = []
    for _ in range(count):
        text = ""
        while len(text) < size:
            text += f'"{chosen.choice(_WORDS)}":{chosen.randrange(10**6)},'
        values.append(text[:size].encode())
    return values


def batch_of_size(total_bytes: int, records: int, timestamp_ms: int, codec: Codec = "none", seed: int = 1) -> bytes:
    """A batch of so many records whose uncompressed form is as close to `total_bytes` as equal values allow, and never longer."""
    size = max(total_bytes // records - 6, 1)  # about what a record costs beside its value
    while len(record_batch([b"x" * (size + 1)] * records, timestamp_ms)) <= total_bytes:
        size += 1
    while size > 1 and len(record_batch([b"x" * size] * records, timestamp_ms)) > total_bytes:
        size -= 1
    return record_batch(values_like_text(records, size, seed), timestamp_ms, codec)
