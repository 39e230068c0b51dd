"""Reads the records inside a batch: iterates over them, or checks them without creating objects.

Called by the log cleaner, by the coordinators when they load their topics, by produce validation, by the commands that show records, and by
tests. All functions loop over the same strict step (`ottla.protocol.records.walk`). A record costs 0.4 µs as an object, 13 ns when it is
only checked.

Any bytes give records or one of `ottla.protocol.records.errors`. `max_bytes` limits the cost of decompression.
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
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES, PIECE_BYTES, decompress, decompressed
from ottla.protocol.records.errors import DecompressionTooLarge, InvalidRecord, TooManyHeaders
from ottla.protocol.records.joined import Joined, join
from ottla.protocol.records.record_step import RECORDS_REMAIN
from ottla.protocol.records.walk import RecordCheck, RecordWalk

BYTES_PER_SLICE: Final = 256 * 1024
"""Bytes of records that `check_records` checks between two calls of `between`: 0.5 ms of the smallest records or headers when compiled.

A number of records would be no limit: each may have half a million headers, and meanwhile no other thread runs.
"""

MOST_HEADERS: Final = 2**31 - 1
"""Headers that the format allows in one record."""
ANY_OFFSET: Final = -(2**64)
"""Below every offset of a record."""

Header = tuple[bytes, bytes | None]
HeaderReader = Callable[[RecordWalk], tuple[Header, ...]]
"""Reads the headers of the record to which the walk has come."""


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
    body: Buffer
    """All behind the offset: key, value and headers with their lengths."""


class RecordsSummary(NamedTuple):
    """Result of a check of the records of one batch."""

    max_timestamp: int
    min_timestamp: int  # of the records with a timestamp; -1 if none has one
    offsets_are_consecutive: bool  # deltas 0, 1, 2, ...
    has_null_key: bool


def record_data(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The bytes of the records of the complete batch at `position`, decompressed to at most `max_bytes`.

    Raises UnknownCompressionCodec, CorruptCompressedData, DecompressionTooLarge.
    """
    body = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    if header.attributes & CODEC_MASK:
        return decompress(known_codec(header), body, max_bytes)
    return join([body])  # one copy, which makes slices of keys and values cheap


def record_pieces(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Buffer]:
    """The same bytes in pieces, decompressed one by one. Raises the same errors, each behind the pieces in front of the fault."""
    body = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    if header.attributes & CODEC_MASK:
        yield from decompressed(known_codec(header), body, max_bytes)
    else:
        yield body


def iter_records(
    buffer: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    *,
    first_offset: int = ANY_OFFSET,
    max_headers: int = MOST_HEADERS,
    read_headers: HeaderReader = RecordWalk.read_headers,
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
    read_headers: HeaderReader = RecordWalk.read_headers,
) -> Iterator[Record]:
    """The records in `data` (already decompressed) of a batch with this header, from `first_offset` on."""
    log_append_time = _log_append_time(header)
    walk = RecordWalk(data, header.record_count)
    while walk.advance():
        offset = header.base_offset + walk.delta
        if offset < first_offset:
            continue
        if walk.headers > max_headers:
            raise TooManyHeaders(offset, walk.headers, max_headers)
        timestamp = int64(header.base_timestamp + walk.elapsed) if log_append_time is None else log_append_time
        yield Record(offset, timestamp, walk.key(), walk.value(), read_headers(walk) if walk.headers else ())


def outline_records(data: bytes, header: BatchHeader) -> Iterator[RecordOutline]:
    """The records in `data`, without objects for their keys, values and headers."""
    log_append_time = _log_append_time(header)
    walk = RecordWalk(data, header.record_count)
    view = memoryview(data)  # a record may be long, and is not copied
    while walk.advance():
        timestamp = int64(header.base_timestamp + walk.elapsed) if log_append_time is None else log_append_time
        yield RecordOutline(header.base_offset + walk.delta, timestamp, walk.key_size, walk.value_size, view[walk.body_at : walk.end])


def iter_offsets_and_timestamps(data: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of every record in `data` (already decompressed)."""
    log_append_time = _log_append_time(header)
    walk = RecordWalk(data, header.record_count)
    while walk.advance():
        timestamp = int64(header.base_timestamp + walk.elapsed) if log_append_time is None else log_append_time
        yield header.base_offset + walk.delta, timestamp


def iter_keys_and_values(data: bytes, header: BatchHeader) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of every record in `data` (already decompressed), for coordinators that load and need nothing else."""
    walk = RecordWalk(data, header.record_count)
    while walk.advance():
        yield walk.key(), walk.value()


def _log_append_time(header: BatchHeader) -> int | None:
    """The timestamp that all records have instead of their own; None if they have their own."""
    return header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None


def check_records(
    pieces: Iterator[Buffer],
    header: BatchHeader,
    between: Callable[[], None] | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> RecordsSummary:
    """Check the structure of all records, whose bytes are `record_pieces`, without creating objects.

    A thread passes `between`, which is called between slices of the work. Raises the errors of `check_pieces`.
    """
    check = RecordCheck()
    check.begin(header.record_count, header.base_timestamp)
    check_pieces(check, pieces, between, max_bytes)
    return summary_of(check, header)


def check_pieces(
    check: RecordCheck, pieces: Iterator[Buffer], between: Callable[[], None] | None = None, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> None:
    """Check all records of the batch with which `check` has begun. At most one record and one piece are in memory.

    Raises InvalidRecord, the errors of the pieces, and DecompressionTooLarge for a record that takes more than `max_bytes`. A record that
    only claims to be long has a buffer of as many bytes, so callers pass no more than the pieces may have.
    """
    data: Buffer = b""
    at = 0
    while check.index < check.count:
        at = check.take(data, at, len(data), BYTES_PER_SLICE)
        if check.missing:
            data = _with_more(data[at:], check, pieces, max_bytes)
            at = 0
        elif between is not None:
            between()
    if check.count > 0 and (at < len(data) or any(pieces)):
        raise InvalidRecord(RECORDS_REMAIN)


def _with_more(data: Buffer, check: RecordCheck, pieces: Iterator[Buffer], max_bytes: int) -> Buffer:
    """These bytes, and as many of the following ones as the record needs. Raises InvalidRecord at their end."""
    missing = check.missing
    joined: Joined | None = None
    while True:
        piece = next(pieces, None)
        if piece is None:
            raise check.end_error()
        if joined is None:
            if missing <= len(piece) and not len(data):
                return piece
            joined = Joined(len(data) + max(len(piece), min(missing, max_bytes) + PIECE_BYTES))
            joined.add(data)
        missing -= len(piece)
        joined.add(piece)
        if joined.size > max_bytes:
            raise DecompressionTooLarge("a record in a compressed", max_bytes)
        if missing <= 0:
            return joined.view()


def summary_of(check: RecordCheck, header: BatchHeader) -> RecordsSummary:
    """The result of a check of the records of a batch with this header."""
    if header.attributes & TIMESTAMP_TYPE_MASK:
        latest = earliest = header.max_timestamp
    else:
        latest, earliest = check.latest, check.earliest
    return RecordsSummary(max(latest, NO_TIMESTAMP), earliest, check.offsets_are_consecutive, check.has_null_key)


def join_header_keys(walk: RecordWalk) -> tuple[Header, ...]:
    """A HeaderReader for texts. Returns one header: its key has the keys of all, with commas in between.

    64 million headers take gigabytes as objects.
    """
    return ((walk.joined_header_keys(), None),)


def int64(value: int) -> int:
    """The number in Java's long arithmetic: a delta may wrap a timestamp around the end of the range, as the header's maximum does."""
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % (1 << 64) - (1 << 63)
