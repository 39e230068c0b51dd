"""Finds runs of records of equal length, and extracts their keys in bulk.

In such a run each byte of a record header has a constant distance to the same byte of the next record. A slice with that
stride has this byte of all records, and is compared in one step. Keys with counters and values of a fixed structure form
such runs: a record then costs 0.15 µs instead of 0.9 byte by byte. Called by `offset_map` and `records` when two records
of one length follow each other; other records are left to the caller.
"""

import struct
from functools import lru_cache
from itertools import chain

SHORTEST_RUN = 8
LONGEST_KEY = 32
"""Longest key handled here, bytes."""
MISSES = 3
"""Failed searches for a run in one batch after which its records are read one by one."""

_ONE_BYTE_DELTAS = bytes(delta << 1 for delta in range(64))
_TWO_BYTE_DELTAS_LOW = bytes(delta << 1 & 0x7F | 0x80 for delta in range(8192))
_TWO_BYTE_DELTAS_HIGH = bytes(delta >> 6 for delta in range(8192))
_HIGH_BIT = bytes(byte >> 7 for byte in range(256))
_BYTES = [bytes([byte]) for byte in range(256)]


def run_length(data: bytes, at: int, length: int, count: int) -> int:
    """The number of the `count` records from `at` on that are `length` bytes long, with sizes of two bytes at most."""
    count = min(count, (len(data) - at) // length)
    if count <= 0:
        return 0
    size = data[at]
    if size < 0x80:
        return _equal(data, at, length, count) if 1 + (size >> 1) == length else 0
    high = data[at + 1]
    if high >= 0x80 or 2 + ((size + (high << 7) - 0x80) >> 1) != length:
        return 0
    return min(_equal(data, at, length, count), _equal(data, at + 1, length, count))


def add_run(data: bytes, at: int, length: int, index: int, count: int, value: int, entries: dict[bytes, int]) -> int:
    """Adds the keys of records of that length from `at` on to `entries`; returns the number added.

    The first of them is the batch's `index`-th. `value` is the value of the first key, and values grow by 2. There are
    `count` records left.
    """
    count = run_length(data, at, length, min(count, (64 if index < 64 else 8192) - index))
    if count < SHORTEST_RUN:
        return 0
    place = at + (2 if data[at] < 0x80 else 3)
    while data[place] >= 0x80:  # the timestamp has the same length in all of them
        count = _prefix(data[place : place + count * length : length].translate(_HIGH_BIT), 1)
        place += 1
    count = _prefix(data[place : place + count * length : length].translate(_HIGH_BIT), 0)
    place += 1
    if index < 64:
        if data[place : place + count * length : length] != _ONE_BYTE_DELTAS[index : index + count]:
            return 0
    else:
        if data[place : place + count * length : length] != _TWO_BYTE_DELTAS_LOW[index : index + count]:
            return 0
        place += 1
        if data[place : place + count * length : length] != _TWO_BYTE_DELTAS_HIGH[index : index + count]:
            return 0
    place += 1
    key_length = data[place]
    if key_length > 2 * LONGEST_KEY or key_length & 1:
        return 0
    count = _equal(data, place, length, count)
    place += 1
    key_length >>= 1
    left = length - (place - at) - key_length
    if count < SHORTEST_RUN or left < 1:
        return 0
    stop = place + key_length
    if 1 in data[stop : stop + count * length : length]:
        return 0  # a tombstone
    keys = chain.from_iterable(_keys(place - at, key_length, left).iter_unpack(memoryview(data)[at : at + count * length]))
    entries.update(zip(keys, range(value, value + 2 * count, 2), strict=True))
    return count


@lru_cache(maxsize=1024)
def _keys(before: int, length: int, after: int) -> struct.Struct:
    return struct.Struct(f"{before}x{length}s{after}x")


def _equal(data: bytes, place: int, stride: int, count: int) -> int:
    """The number of the `count` bytes from `place` on, each a stride after the one before, that equal the first."""
    return _prefix(data[place : place + count * stride : stride], data[place])


def _prefix(column: bytes, byte: int) -> int:
    return len(column) - len(column.lstrip(_BYTES[byte]))
