"""The batches of a segment file, whole and one after the other. Used by the dump and by the check."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from protocol.records import HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, BatchHeader, next_batch_size, parse_header

READ_BYTES = 8 * 1024 * 1024


class WholeBatch(NamedTuple):
    """A complete batch: where it stands in the file, and where in `buffer`."""

    position: int
    header: BatchHeader
    buffer: memoryview
    at: int


def whole_batches(file: BinaryIO, position: int, end: int) -> Iterator[WholeBatch]:
    """The complete batches in `[position, end)` of the file, read a few megabytes at a time; a cut-off last one is passed over.

    Raises RecordFormatError where no batch can begin.
    """
    length = READ_BYTES
    while end - position >= LOG_OVERHEAD:
        file.seek(position)
        buffer = memoryview(file.read(min(length, end - position)))
        length = READ_BYTES
        at = 0
        if len(buffer) < min(HEADER_SIZE_UP_TO_MAGIC, end - position):
            return  # the file was cut meanwhile
        while len(buffer) - at >= HEADER_SIZE_UP_TO_MAGIC:
            size = next_batch_size(buffer, at, at + end - position)
            if size is None:
                return
            if size > len(buffer) - at:
                length = max(size, READ_BYTES)
                break
            yield WholeBatch(position, parse_header(buffer, at), buffer, at)
            at += size
            position += size
        if at == 0 and length == READ_BYTES:
            next_batch_size(buffer, 0, len(buffer))  # says what is wrong with a tail that is too short for a header
            return
