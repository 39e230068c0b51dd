"""Reads one record of a batch of format 2: the only place that knows its layout. Every walk over records is a loop over `read_record`.

`record_step.pxd` has the same functions in C for compiled callers, as `ottla.protocol.cursors.fields` has. Python code uses
`ottla.protocol.records.walk`, which is compiled.

The step is strict. Each length is 0 or more, or -1 for a null key or value. Each number ends after five bytes (timestamps: ten), and bits
beyond 32 (64) are dropped, as Java does. A header has a key. The fields fill the record exactly. Nothing is read beyond the given end.

    length varint | attributes int8 | timestampDelta varlong | offsetDelta varint | key length varint, bytes | value length varint, bytes
    | header count varint | per header: key length varint, bytes | value length varint, bytes
"""

from typing import Final, TypeAlias

from ottla.protocol.records.errors import InvalidRecord, OverlongLength

Bytes: TypeAlias = bytes | bytearray | memoryview
RecordFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int]
HeaderFields: TypeAlias = tuple[int, int, int, int, int]

# Kinds of faults, which `read_record` returns instead of the end of the record.
INCOMPLETE: Final = -1
"""The bytes end in the record. Behind it: how many are missing, as far as is known."""
OVERLONG: Final = -2
"""The length of the record does not end after five bytes."""
NEGATIVE: Final = -3
"""The length of the record is negative."""
STRUCTURE: Final = -4
"""A number does not end, or a length is negative or reaches beyond the record."""
HEADER_COUNT: Final = -5
"""The number of headers is negative, or larger than the bytes behind it. It follows."""
HEADER_KEY: Final = -6
"""The length of a header's key is negative. It follows."""
WRONG_LENGTH: Final = -7
"""The fields end before the record does. Behind it: its length, and the length of its fields."""
BATCH_COUNT: Final = -8
"""The number of records in the header of the batch is negative. It follows."""

PREMATURE_END: Final = "Incorrect declared batch size, premature EOF reached"
RECORDS_REMAIN: Final = "Incorrect declared batch size, records still remaining in file"


def read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """(number, position after it) of a zigzag varint of at most five bytes. The position is INCOMPLETE or OVERLONG if it does not end."""
    raw = shift = 0
    while shift < 35:
        if at >= end:
            return 0, INCOMPLETE
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, OVERLONG


def read_varlong(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """As `read_varint`, of at most ten bytes."""
    raw = shift = 0
    while shift < 70:
        if at >= end:
            return 0, INCOMPLETE
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, OVERLONG


def _fault(kind: int, first: int = 0, second: int = 0) -> RecordFields:
    return kind, first, second, 0, 0, 0, 0, 0, 0, 0, 0


def read_record(data: Bytes, at: int, end: int) -> RecordFields:
    """Read the record that begins at `at`. The bytes end at `end`.

    Returns (end of the record, timestamp delta, offset delta, place of the offset delta, place of all behind it, place and size of the key,
    place and size of the value, number of headers, place of the first). The size of null is -1. For a fault it returns its kind and the
    numbers for `record_error`.
    """
    size, start = read_varint(data, at, end)
    if start < 0:
        return _fault(start, 1)
    if size < 0:
        return _fault(NEGATIVE, size)
    if size > end - start:
        return _fault(INCOMPLETE, size - (end - start), size)
    end = start + size
    elapsed, delta_at = read_varlong(data, start + 1, end)
    if delta_at < 0:
        return _fault(STRUCTURE)
    delta, body_at = read_varint(data, delta_at, end)
    if body_at < 0:
        return _fault(STRUCTURE)
    key_size, key_at = read_varint(data, body_at, end)
    if key_at < 0 or key_size < -1 or key_size > end - key_at:
        return _fault(STRUCTURE)
    value_size, value_at = read_varint(data, key_at + max(key_size, 0), end)
    if value_at < 0 or value_size < -1 or value_size > end - value_at:
        return _fault(STRUCTURE)
    headers, headers_at = read_varint(data, value_at + max(value_size, 0), end)
    if headers_at < 0:
        return _fault(STRUCTURE)
    if headers < 0 or headers > end - headers_at:
        return _fault(HEADER_COUNT, headers)
    at = headers_at
    for _ in range(headers):
        at, _, size, _, _ = read_header(data, at, end)
        if at < 0:
            return _fault(at, size)
    if at != end:
        return _fault(WRONG_LENGTH, end - start, at - start)
    return end, elapsed, delta, delta_at, body_at, key_at, key_size, value_at, value_size, headers, headers_at


def check_record(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Of what `read_record` returns: the end, the deltas of timestamp and offset, and the size of the key."""
    end, elapsed, delta, _, _, _, key_size, _, _, _, _ = read_record(data, at, end)
    return end, elapsed, delta, key_size


def read_header(data: Bytes, at: int, end: int) -> HeaderFields:
    """Read the header at `at` of a record that ends at `end`.

    Returns (end of the header, place and size of the key, place and size of the value). For a fault it returns its kind, 0, and the number
    for `record_error`.
    """
    key_size, key_at = read_varint(data, at, end)
    if key_at < 0 or key_size > end - key_at:
        return STRUCTURE, 0, 0, 0, 0
    if key_size < 0:
        return HEADER_KEY, 0, key_size, 0, 0
    value_size, value_at = read_varint(data, key_at + key_size, end)
    if value_at < 0 or value_size < -1 or value_size > end - value_at:
        return STRUCTURE, 0, 0, 0, 0
    return value_at + max(value_size, 0), key_at, key_size, value_at, value_size


def wrapped_sum(number: int, other: int) -> int:
    """The sum, wrapped to 64 bits as in Java."""
    return (number + other + 2**63) % 2**64 - 2**63


def record_error(kind: int, first: int, second: int) -> InvalidRecord:
    """The error for what `read_record` returned."""
    if kind == OVERLONG:
        return OverlongLength("Varint is too long: the length of a record has more than 5 bytes")
    if kind == INCOMPLETE:
        if not second:
            return InvalidRecord(PREMATURE_END)
        return InvalidRecord(
            f"Invalid record size: expected {second} bytes in record payload, "
            f"but instead the buffer has only {second - first} remaining bytes."
        )
    if kind == HEADER_COUNT:
        if first < 0:
            return InvalidRecord(f"Found invalid number of record headers {first}")
        return InvalidRecord(f"Found invalid number of record headers. {first} is larger than the remaining size of the buffer")
    if kind == HEADER_KEY:
        return InvalidRecord(f"Invalid negative header key size {first}")
    if kind == WRONG_LENGTH:
        return InvalidRecord(f"Invalid record size: expected to read {first} bytes in record payload, but instead read {second}")
    if kind == BATCH_COUNT:
        return InvalidRecord(f"Found invalid record count {first} in magic v2 batch")
    if kind == NEGATIVE:
        return InvalidRecord(f"Invalid record size: {first}")
    return InvalidRecord("Found invalid record structure")
