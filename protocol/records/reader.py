"""Reads the records inside a batch: iterates over them, or walks over them without creating objects.

Called by the log cleaner, by the coordinators when they load their topics, by produce validation (small batches and compacted topics) and
by tests. Never called on the common produce or fetch path: a record costs at least 1 µs in Python, a batch header 0.4 µs.

Any bytes give records or one of `ottla.protocol.records.errors`. `max_bytes` limits the cost of decompression.

    length varint | attributes int8 | timestampDelta varlong | offsetDelta varint | key length varint, bytes | value length varint, bytes
    | header count varint | per header: key length varint, bytes | value length varint, bytes
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ottla.protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
    known_codec,
    parse_header,
)
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from ottla.protocol.records.errors import InvalidRecord, TooManyHeaders

_STRUCTURE: Final = "Found invalid record structure"
PREMATURE_END: Final = "Incorrect declared batch size, premature EOF reached"
RECORDS_REMAIN: Final = "Incorrect declared batch size, records still remaining in file"

RECORDS_PER_SLICE: Final = 500
"""Records that `walk_records` checks between two calls of `between`, half a millisecond."""

MOST_HEADERS: Final = 2**31 - 1
"""Headers that the format allows in one record."""
ANY_OFFSET: Final = -(2**64)
"""Below every offset of a record."""
MOST_CHECKED_HEADERS: Final = 100
"""Headers of a record that are checked while the event loop waits, 25 µs; one in a compressed batch of 1 MiB may have 64 million."""

Header = tuple[bytes, bytes | None]
HeaderReader = Callable[[bytes, int, int, int], tuple[tuple[Header, ...], int]]
"""Reads headers: (data, position, end of the data, their number) -> (headers, position after them)."""


class Record(NamedTuple):
    """One record with absolute offset and timestamp. Header keys are bytes, because they may be invalid UTF-8."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class RecordOutline(NamedTuple):
    """One record whose key, value and headers stay encoded. The size of a null key or value is -1."""

    offset: int
    timestamp: int
    key_bytes: int
    value_bytes: int
    body: bytes
    """All behind the offset: key, value and headers with their lengths."""


class RecordsSummary(NamedTuple):
    """Result of a walk over the records of one batch."""

    max_timestamp: int
    min_timestamp: int  # of the records with a timestamp; max_timestamp if none has one
    offsets_are_consecutive: bool  # deltas 0, 1, 2, ...
    has_null_key: bool


def record_data(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The bytes of the records of the complete batch at `position`, decompressed to at most `max_bytes`.

    Raises UnknownCompressionCodec, CorruptCompressedData, DecompressionTooLarge.
    """
    body = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    if header.attributes & CODEC_MASK:
        return decompress(known_codec(header), body, max_bytes)
    return bytes(body)  # one copy, which makes slices of keys and values cheap


def iter_records(
    buffer: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    *,
    first_offset: int = ANY_OFFSET,
    max_headers: int = MOST_HEADERS,
    read_headers: HeaderReader | None = None,
) -> Iterator[Record]:
    """The records of the complete batch at `position`, from `first_offset` on, with the headers that `read_headers` returns.

    Raises InvalidRecord at the first record that violates the format, or if their number differs from the header. Raises the errors of
    `record_data`, and TooManyHeaders at a record with more than `max_headers`.
    """
    known = parse_header(buffer, position) if header is None else header
    return parse_records(record_data(buffer, position, known, max_bytes), known, first_offset, max_headers, read_headers)


def parse_records(
    data: bytes,
    header: BatchHeader,
    first_offset: int = ANY_OFFSET,
    max_headers: int = MOST_HEADERS,
    read_headers: HeaderReader | None = None,
) -> Iterator[Record]:
    """The records in `data` (already decompressed) of a batch with this header, from `first_offset` on."""
    count = _count(header)
    log_append_time = _log_append_time(header)
    at = 0
    end = len(data)
    for _ in range(count):
        try:
            size, at = read_varint(data, at)
        except IndexError:
            raise InvalidRecord(PREMATURE_END) from None
        record_end = at + size
        if record_end > end:
            raise InvalidRecord(
                f"Invalid record size: expected {size} bytes in record payload, but instead the buffer has only {end - at} remaining bytes."
            )
        try:
            timestamp_delta, at = read_varlong(data, at + 1)
            offset_delta, at = read_varint(data, at)
            key, at = _read_bytes(data, at, end)
            value, at = _read_bytes(data, at, end)
            header_count, at = read_varint(data, at)
            offset = header.base_offset + offset_delta
            headers: tuple[Header, ...] = ()
            if header_count:
                if offset < first_offset:
                    at = _skip_headers(data, at, end, header_count)
                elif header_count > max_headers:
                    raise TooManyHeaders(offset, header_count, max_headers)
                else:
                    headers, at = (read_headers or _read_headers)(data, at, end, header_count)
        except IndexError:
            raise InvalidRecord(_STRUCTURE) from None
        if at != record_end:
            raise _wrong_size(size, at - record_end)
        if offset < first_offset:
            continue
        timestamp = int64(header.base_timestamp + timestamp_delta) if log_append_time is None else log_append_time
        yield Record(offset, timestamp, key, value, headers)
    if count and at != end:
        raise InvalidRecord(RECORDS_REMAIN)


def outline_records(data: bytes, header: BatchHeader) -> Iterator[RecordOutline]:
    """The records in `data`, whose structure `walk_records` has checked, without objects for their headers."""
    log_append_time = _log_append_time(header)
    at = 0
    for _ in range(header.record_count):
        size, at = read_varint(data, at)
        end = at + size
        timestamp_delta, at = read_varlong(data, at + 1)
        offset_delta, body = read_varint(data, at)
        key_bytes, at = read_varint(data, body)
        value_bytes, _ = read_varint(data, at + max(key_bytes, 0))
        timestamp = int64(header.base_timestamp + timestamp_delta) if log_append_time is None else log_append_time
        yield RecordOutline(header.base_offset + offset_delta, timestamp, max(key_bytes, -1), max(value_bytes, -1), data[body:end])
        at = end


def iter_offsets_and_timestamps(data: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of every record in `data` (already decompressed). Passes over the rest of each record by its length."""
    count = _count(header)
    log_append_time = _log_append_time(header)
    at = 0
    end = len(data)
    for _ in range(count):
        try:
            size, at = read_varint(data, at)
            record_end = at + size
            timestamp_delta, at = read_varlong(data, at + 1)
            offset_delta, at = read_varint(data, at)
        except IndexError:
            raise InvalidRecord(PREMATURE_END) from None
        if not at <= record_end <= end:
            raise InvalidRecord(_STRUCTURE)
        at = record_end
        timestamp = int64(header.base_timestamp + timestamp_delta) if log_append_time is None else log_append_time
        yield header.base_offset + offset_delta, timestamp
    if count and at != end:
        raise InvalidRecord(RECORDS_REMAIN)


def iter_keys_and_values(data: bytes, header: BatchHeader) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of every record in `data` (already decompressed), for coordinators that load and need nothing else.

    Takes half the time of `parse_records`, with the same checks and errors. Only headers beyond MOST_CHECKED_HEADERS are not checked: it
    passes over them by the length of their record.
    """
    count = _count(header)
    at = 0
    end = len(data)
    for _ in range(count):
        try:
            size, at = read_varint(data, at)
        except IndexError:
            raise InvalidRecord(PREMATURE_END) from None
        record_end = at + size
        if record_end > end:
            raise InvalidRecord(
                f"Invalid record size: expected {size} bytes in record payload, but instead the buffer has only {end - at} remaining bytes."
            )
        try:
            at += 1
            if data[at] < 0x80:
                at += 1
            else:
                _, at = read_varlong(data, at)
            if data[at] < 0x80:
                at += 1
            else:
                _, at = read_varint(data, at)
            length = data[at]
            if length < 0x80 and not length & 1:  # short, and not null
                at += 1
                stop = at + (length >> 1)
                if stop > end:
                    raise InvalidRecord(_STRUCTURE)
                key: bytes | None = data[at:stop]
                at = stop
            else:
                key, at = _read_bytes(data, at, end)
            length = data[at]
            if length < 0x80 and not length & 1:
                at += 1
                stop = at + (length >> 1)
                if stop > end:
                    raise InvalidRecord(_STRUCTURE)
                value: bytes | None = data[at:stop]
                at = stop
            else:
                value, at = _read_bytes(data, at, end)
            if data[at]:
                header_count, at = read_varint(data, at)
                if header_count <= MOST_CHECKED_HEADERS:
                    at = _skip_headers(data, at, end, header_count)
                else:
                    _check_header_count(header_count, end - at)
                    at = max(at, record_end)
            else:
                at += 1
        except IndexError:
            raise InvalidRecord(_STRUCTURE) from None
        if at != record_end:
            raise _wrong_size(size, at - record_end)
        yield key, value
    if count and at != end:
        raise InvalidRecord(RECORDS_REMAIN)


def _count(header: BatchHeader) -> int:
    """The number of records. Raises InvalidRecord for a negative one."""
    count = header.record_count
    if count < 0:
        raise InvalidRecord(f"Found invalid record count {count} in magic v{header.magic} batch")
    return count


def _log_append_time(header: BatchHeader) -> int | None:
    """The timestamp that all records have instead of their own; None if they have their own."""
    return header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None


def walk_records(data: bytes, header: BatchHeader, between: Callable[[], None] | None = None) -> RecordsSummary:
    """Check the structure of all records in `data` as `parse_records` does, without creating objects.

    Takes 1.1 µs per record (parse_records: 2.5). A thread passes `between`, which is called between slices of the work. Raises
    InvalidRecord.
    """
    count = _count(header)
    base_timestamp = header.base_timestamp
    latest: int | None = None
    earliest: int | None = None
    consecutive, null_key = True, False
    at = 0
    try:
        for first in range(0, count, RECORDS_PER_SLICE):
            if first and between is not None:
                between()
            indexes = range(first, min(first + RECORDS_PER_SLICE, count))
            at, latest, earliest, are_next, lacks_key = _walk(data, at, indexes, -1 - base_timestamp, latest, earliest)
            consecutive, null_key = consecutive and are_next, null_key or lacks_key
    except IndexError:
        raise InvalidRecord(_STRUCTURE) from None
    if count and at != len(data):
        raise InvalidRecord(RECORDS_REMAIN)
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return RecordsSummary(header.max_timestamp, header.max_timestamp, consecutive, null_key)
    max_timestamp = max(int64(base_timestamp + latest), NO_TIMESTAMP) if latest is not None else header.max_timestamp
    min_timestamp = max_timestamp if earliest is None else int64(base_timestamp + earliest)
    return RecordsSummary(max_timestamp, min_timestamp, consecutive, null_key)


def _walk(
    data: bytes, at: int, indexes: range, no_timestamp: int, latest: int | None, earliest: int | None
) -> tuple[int, int | None, int | None, bool, bool]:
    """(end of the records, largest and smallest timestamp delta, whether offsets are consecutive, whether a key is null).

    The records from `at` on have these indexes; `latest` and `earliest` are the deltas of those before, `no_timestamp` is that of none.
    Raises InvalidRecord, and IndexError at the end of the data.
    """
    consecutive, null_key, end = True, False, len(data)
    for index in indexes:
        size = data[at]
        at += 1
        if size < 0x80:
            size = size >> 1 ^ -(size & 1)
        elif (high := data[at]) < 0x80:  # most lengths have two bytes
            size += (high << 7) - 0x80
            size = size >> 1 ^ -(size & 1)
            at += 1
        else:
            size, at = read_varint(data, at - 1)
        record_end = at + size
        at += 1  # attributes, all unused
        delta = data[at]
        if delta < 0x80:
            delta = (delta >> 1) ^ -(delta & 1)
            at += 1
        else:
            delta, at = read_varlong(data, at)
        if latest is None or delta > latest:
            latest = delta
        if delta != no_timestamp and (earliest is None or delta < earliest):
            earliest = delta
        delta = data[at]
        if delta < 0x80:
            delta = (delta >> 1) ^ -(delta & 1)
            at += 1
        else:
            delta, at = read_varint(data, at)
        if delta != index:
            consecutive = False
        length = data[at]
        if length < 0x80:
            length = (length >> 1) ^ -(length & 1)
            at += 1
        else:
            length, at = read_varint(data, at)
        if length < 0:
            null_key = True
        else:
            at += length
        length = data[at]
        at += 1
        if length < 0x80:
            length = length >> 1 ^ -(length & 1)
        elif (high := data[at]) < 0x80:
            length += (high << 7) - 0x80
            length = length >> 1 ^ -(length & 1)
            at += 1
        else:
            length, at = read_varint(data, at - 1)
        if length > 0:
            at += length
        if data[at]:
            length, at = read_varint(data, at)
            at = _skip_headers(data, at, end, length)
        else:
            at += 1
        if at != record_end:
            raise _wrong_size(size, at - record_end)
    return at, latest, earliest, consecutive, null_key


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """(value, position after it) of a zigzag varint of at most 5 bytes, wrapped to 32 bits as in Java.

    Raises IndexError at the end of the data, InvalidRecord if the varint is longer.
    """
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at + 1
    raise InvalidRecord(_STRUCTURE)


def read_varlong(data: Buffer, at: int) -> tuple[int, int]:
    """(value, position after it) of a zigzag varint of at most 10 bytes, wrapped to 64 bits. Raises as `read_varint`."""
    raw = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at
    raise InvalidRecord(_STRUCTURE)


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at
    stop = at + length
    if stop > end:
        raise InvalidRecord(_STRUCTURE)
    return data[at:stop], stop


def _check_header_count(count: int, remaining: int) -> None:
    if count < 0:
        raise InvalidRecord(f"Found invalid number of record headers {count}")
    if count > remaining:
        raise InvalidRecord(f"Found invalid number of record headers. {count} is larger than the remaining size of the buffer")


def _skip_headers(data: bytes, at: int, end: int, count: int) -> int:
    """The position after the headers, with the checks of `_read_headers`. Makes none: a small compressed batch may have 64 million."""
    _check_header_count(count, end - at)
    for _ in range(count):
        length, at = read_varint(data, at)
        if length < 0:
            raise InvalidRecord("Invalid negative header key size -1")
        at += length
        if at > end:
            raise InvalidRecord(_STRUCTURE)
        length, at = read_varint(data, at)
        if length > 0:
            at += length
            if at > end:
                raise InvalidRecord(_STRUCTURE)
    return at


def _read_headers(data: bytes, at: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    _check_header_count(count, end - at)
    headers: list[Header] = []
    for _ in range(count):
        key, at = _read_header_key(data, at, end)
        value, at = _read_bytes(data, at, end)
        headers.append((key, value))
    return tuple(headers), at


def join_header_keys(data: bytes, at: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    """A HeaderReader for texts. Returns one header: its key has the keys of all, with commas in between.

    64 million headers take gigabytes as objects.
    """
    _check_header_count(count, end - at)
    keys = bytearray()
    for number in range(count):
        key, at = _read_header_key(data, at, end)
        _, at = _read_bytes(data, at, end)
        if number:
            keys += b","
        keys += key
    return ((bytes(keys), None),), at


def _read_header_key(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    key, at = _read_bytes(data, at, end)
    if key is None:
        raise InvalidRecord("Invalid negative header key size -1")
    return key, at


def _wrong_size(size: int, excess: int) -> InvalidRecord:
    return InvalidRecord(f"Invalid record size: expected to read {size} bytes in record payload, but instead read {size + excess}")


def int64(value: int) -> int:
    """The number in Java's long arithmetic: a delta may wrap a timestamp around the end of the range, as the header's maximum does."""
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % (1 << 64) - (1 << 63)
