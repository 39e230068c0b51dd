"""Makes record batches as producers send them, of a given size and with values that compress like event data."""

import random
import struct
from collections.abc import Sequence
from typing import Literal

import crc32c

from ottla.protocol.records.batch import ATTRIBUTES_OFFSET, TRANSACTIONAL_MASK
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CODEC_BY_NAME
from ottla.protocol.records.reader import Record

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CRC_AT = 17
"""Place of the checksum in a batch; it covers all bytes after it."""
COVERED_AT = CRC_AT + 4
SEQUENCE_AT = 53
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_AT = 43
_WORDS = ("amount", "city", "currency", "customer", "delivered", "order", "payment", "pending", "price", "quantity", "region", "shipped")


def batch_of_values(values: Sequence[bytes], timestamp_ms: int, codec: Codec = "none") -> bytes:
    """One batch of records without keys, all with the same timestamp, from a producer that is not idempotent."""
    records = [Record(offset, timestamp_ms, None, value) for offset, value in enumerate(values)]
    return bytes(build_batch(records, CODEC_BY_NAME[codec]))


def values_like_text(count: int, size: int, seed: int = 1) -> list[bytes]:
    """`count` values of exactly `size` bytes: known words, changing digits."""
    chosen = random.Random(seed)
    values = []
    for _ in range(count):
        text = ""
        while len(text) < size:
            text += f'"{chosen.choice(_WORDS)}":{chosen.randrange(10**6)},'
        values.append(text[:size].encode())
    return values


def batch_of_size(total_bytes: int, records: int, timestamp_ms: int, codec: Codec = "none") -> bytes:
    """A batch of `records` records whose uncompressed form is as close to `total_bytes` as equal values allow, and never longer."""

    def uncompressed(size: int) -> int:
        return len(batch_of_values([bytes(size)] * records, timestamp_ms))

    too_small, too_large = 0, total_bytes // records + 1
    while too_large - too_small > 1:
        size = (too_small + too_large) // 2
        if uncompressed(size) <= total_bytes:
            too_small = size
        else:
            too_large = size
    return batch_of_values(values_like_text(records, too_small), timestamp_ms, codec)


def of_producer(batch: bytes, producer_id: int, sequence: int = 0, epoch: int = 0, *, is_transactional: bool = False) -> bytes:
    """The same batch from an idempotent producer, or in a transaction of it."""
    made = bytearray(batch)
    _PRODUCER.pack_into(made, _PRODUCER_AT, producer_id, epoch, sequence)
    if is_transactional:
        made[ATTRIBUTES_OFFSET + 1] |= TRANSACTIONAL_MASK
    made[CRC_AT:COVERED_AT] = crc32c.crc32c(made[COVERED_AT:]).to_bytes(4, "big")
    return bytes(made)
