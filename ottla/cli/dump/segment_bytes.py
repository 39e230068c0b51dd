"""Iterates over the complete batches of a segment file. Used by the dump and by the check."""

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from ottla.protocol.records.batch import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MIN_LEGACY_RECORD_SIZE,
    BatchHeader,
    parse_header,
)
from ottla.protocol.records.errors import CorruptRecord, InvalidMagic

READ_BYTES = 8 * 1024 * 1024

_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")


class WholeBatch(NamedTuple):
    """A complete batch: its position in the file, and its index in `buffer`."""

    position: int
    header: BatchHeader
    buffer: memoryview
    at: int


def whole_batches(file: BinaryIO, position: int, end: int) -> Iterator[WholeBatch]:
    """The complete batches in `[position, end)` of the file, read a few megabytes at a time; an incomplete last one is
    ignored.

    Like the original it first checks the length, and the magic only of complete batches, so that a torn tail of any
    bytes is recognized by its length. An unknown magic is read as the newest known one.

    Messages of format 0 and 1 are batches here. Raises CorruptRecord where no batch can begin.
    """
    length = READ_BYTES
    while end - position > HEADER_SIZE_UP_TO_MAGIC:
        file.seek(position)
        buffer = memoryview(file.read(min(length, end - position)))
        if len(buffer) < min(length, end - position):
            end = position + len(buffer)  # the file was cut meanwhile
        length = READ_BYTES
        at = 0
        while end - position > HEADER_SIZE_UP_TO_MAGIC and len(buffer) - at >= HEADER_SIZE_UP_TO_MAGIC:
            batch_length, magic = _LENGTH_AND_MAGIC.unpack_from(buffer, at)
            if batch_length < MIN_LEGACY_RECORD_SIZE:
                raise CorruptRecord(f"Record size {batch_length} is less than the minimum record overhead ({MIN_LEGACY_RECORD_SIZE})")
            size = batch_length + LOG_OVERHEAD
            if size > end - position:
                return
            if magic < 0:
                raise InvalidMagic(magic)
            if size < HEADER_SIZE and magic >= CURRENT_MAGIC:
                raise CorruptRecord(f"Record batch is corrupt (the size {size} is smaller than the minimum allowed overhead {HEADER_SIZE})")
            if size > len(buffer) - at:
                length = max(size, READ_BYTES)
                break
            yield WholeBatch(position, parse_header(buffer, at), buffer, at)
            at += size
            position += size
