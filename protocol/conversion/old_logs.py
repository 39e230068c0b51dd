"""Reads logs that have messages of formats 0 and 1, or both these and batches.

The readers of records call it: look-ups by time, the cleaner, the loading of internal topics, the dump of a log. They get a message as a
batch of format 2 with the same records. Bytes that are sent or replicated are not converted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.protocol.conversion.message_reader import MessageReader
from ottla.protocol.conversion.message_sets import as_batch, unwrap
from ottla.protocol.records.batch import CODEC_MASK, TIMESTAMP_TYPE_MASK, BatchHeader, Buffer, parse_header
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from ottla.protocol.records.reader import (
    ANY_OFFSET,
    MOST_HEADERS,
    HeaderReader,
    Record,
    iter_offsets_and_timestamps,
    iter_records,
    record_data,
)
from ottla.protocol.records.walk import RecordWalk

TOGETHER_BYTES: Final = 16 * 1024
"""Bytes of single messages that become one batch when a log is cleaned; the usual size of a producer's batch."""


def records_at(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    first_offset: int = ANY_OFFSET,
    max_headers: int = MOST_HEADERS,
    read_headers: HeaderReader = RecordWalk.read_headers,
) -> Iterator[Record]:
    """The records of the batch, or of the message, at `position`. Raises the errors of `iter_records` and of `up_convert`."""
    return iter_records(*readable(buffer, position, header), first_offset=first_offset, max_headers=max_headers, read_headers=read_headers)


def offsets_and_timestamps_at(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of the batch, or of the message, at `position`. Raises the errors of `records_at`."""
    batch, at, known = readable(buffer, position, header, max_bytes)
    return iter_offsets_and_timestamps(record_data(batch, at, known, max_bytes), known)


def readable(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> tuple[Buffer, int, BatchHeader]:
    """The batch at `position` unchanged, or the message there as a batch: buffer, position and header.

    Raises the errors of `up_convert`.
    """
    if not header.is_message:
        return buffer, position, header
    batch = as_batch(memoryview(bytearray(buffer[position : position + header.size])), no_yield, max_bytes)
    return batch, 0, parse_header(batch)


def checksums_of(buffer: Buffer, position: int, header: BatchHeader) -> Iterator[tuple[int, bool]]:
    """The checksum of each message in the one at `position`, or its own, and whether it is right. Raises the errors of `up_convert`."""
    frame = memoryview(bytearray(buffer[position : position + header.size]))
    reader = MessageReader(frame, 0, len(frame))
    if not reader.advance() or not reader.attributes & CODEC_MASK:
        yield reader.crc, reader.checksum_is_right()
        return
    messages = unwrap(frame, reader)
    reader = MessageReader(messages, 0, len(messages))
    while reader.advance():
        yield reader.crc, reader.checksum_is_right()


def as_batches(chunk: bytes, found: list[tuple[int, BatchHeader]]) -> tuple[bytes, list[tuple[int, BatchHeader]]]:
    """The batches and messages in `chunk`, each message as a batch; both with their positions.

    Messages that are not compressed become one batch together, up to `TOGETHER_BYTES`. Raises the errors of `up_convert`.
    """
    parts: list[Buffer] = []
    headers: list[tuple[int, BatchHeader]] = []
    at = done = 0
    while done < len(found):
        start, header = found[done]
        end = start + header.size
        done += 1
        part: Buffer = chunk[start:end]
        if header.is_message:
            while done < len(found) and _belong_together(header, found[done][1]) and found[done][0] - start < TOGETHER_BYTES:
                end += found[done][1].size
                done += 1
            part = as_batch(memoryview(bytearray(chunk[start:end])), no_yield)
            header = parse_header(part)
        parts.append(part)
        headers.append((at, header))
        at += header.size
    return b"".join(parts), headers


def _belong_together(first: BatchHeader, following: BatchHeader) -> bool:
    """Whether two messages can be in one batch."""
    if first.record_count != 1 or following.record_count != 1 or (first.magic, first.attributes) != (following.magic, following.attributes):
        return False
    return not first.attributes & TIMESTAMP_TYPE_MASK or first.max_timestamp == following.max_timestamp


def no_yield() -> None:
    """Replaces `between` where no event loop waits."""
