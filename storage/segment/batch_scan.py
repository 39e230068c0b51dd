"""Reads the batches of a log file in order: only their headers, or for recovery whole batches.

Used by segments to find a position, and by recovery. Headers are read in chunks of a few KiB: one system call reads many small batches, or
one large one.
"""

from collections.abc import Iterator

from ottla.protocol.records.batch import HEADER_SIZE, MIN_BATCH_SIZE, BatchHeader, header_bytes, next_batch_size, parse_header
from ottla.protocol.records.errors import CorruptRecord
from ottla.storage.disk.checkpoint import MAX_OFFSET
from ottla.storage.disk.filesystem import File
from ottla.storage.segment.cold_lookups import UnwaitingFile

_CHUNK_BYTES = 4096
_READ_BYTES = 1024 * 1024


def batches_from(file: File | UnwaitingFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch in `[position, end)`. Stops at a batch that is cut off.

    Raises protocol's RecordFormatError where no batch can begin, and for offsets beyond 64 bits.
    """
    length = _CHUNK_BYTES
    while end - position >= MIN_BATCH_SIZE:
        chunk = file.pread(min(length, end - position), position)
        at = 0
        while len(chunk) - at >= MIN_BATCH_SIZE:
            size = next_batch_size(chunk, at, at + end - position)
            if size is None:
                return
            if len(chunk) - at < header_bytes(chunk, at):
                break
            header = parse_header(chunk, at)
            if header.last_offset >= MAX_OFFSET:
                raise CorruptRecord(f"the batch at byte {position} has offset {header.last_offset}, which none can follow")
            yield position, header
            at += size
            position += size
        if at == 0:
            return
        # Behind a batch larger than a chunk only the next header is worth reading.
        length = _CHUNK_BYTES if at <= len(chunk) else HEADER_SIZE


def header_at(file: File | UnwaitingFile, position: int, end: int) -> BatchHeader | None:
    """The header of the complete batch at `position`; None if there is none before `end`.

    Raises protocol's RecordFormatError if no batch can begin there.
    """
    data = file.pread(HEADER_SIZE, position)
    if len(data) < MIN_BATCH_SIZE or next_batch_size(data, 0, end - position) is None or len(data) < header_bytes(data, 0):
        return None
    return parse_header(data)


def whole_batches(file: File, end: int) -> Iterator[tuple[int, BatchHeader, memoryview, int]]:
    """(position, header, buffer, position in buffer) of each complete batch, read a megabyte at a time."""
    position = 0
    length = _READ_BYTES
    while end - position >= MIN_BATCH_SIZE:
        chunk = memoryview(file.pread(min(length, end - position), position))
        length = _READ_BYTES
        at = 0
        while len(chunk) - at >= MIN_BATCH_SIZE:
            size = next_batch_size(chunk, at, at + end - position)
            if size is None:
                return
            if size > len(chunk) - at:
                length = max(size, _READ_BYTES)
                break
            yield position, parse_header(chunk, at), chunk, at
            at += size
            position += size
        if at == 0 and length <= len(chunk):
            return
