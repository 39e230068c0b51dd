"""Searches the records of a batch by their timestamps, for ListOffsets, and leaves large batches to a thread.

A record takes a microsecond, and a batch of 130 KB may expand to 18 million. So a search on the event loop ends with `LongSearch`, a
`NotCached`, at a large batch. A thread runs its `warm`, which searches the batch. The repeated search then takes the result from its
`FoundRecords`.

The time index leads to the right batch, unless DeleteRecords has hidden the youngest records of the segment. Then all batches behind them
are passed over, in a large segment millions. So a search on the event loop also ends, with `LongWalk`, after a number of batches. The
repeated search goes on behind them.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.conversion.old_logs import offsets_and_timestamps_at
from ottla.protocol.records.batch import CODEC_MASK, BatchHeader
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from ottla.protocol.records.errors import DecompressionTooLarge, RecordFormatError
from ottla.storage.disk.filesystem import File
from ottla.storage.disk.yielding import PacedYield, no_yield
from ottla.storage.segment.batch_scan import batches_from
from ottla.storage.segment.cold_lookups import LongWalk, NotCached, UnwaitingFile

if TYPE_CHECKING:
    from ottla.storage.segment.segment import Segment

LATEST: Final = (1 << 63) - 1
"""Largest timestamp."""
INLINE_RECORDS: Final = 400
"""Records of a batch that is searched on the event loop, a millisecond."""
INLINE_BYTES: Final = 128 * 1024
"""Decompressed bytes of such a batch."""
INLINE_PLAIN_BYTES: Final = 1024 * 1024
"""Bytes of such a batch that is not compressed: 3 ms if they are empty headers."""
INLINE_BATCHES: Final = 1000
"""Batches that are passed over in one turn of the event loop, a millisecond."""
MOST_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that a thread reads ahead for a search that passes over batches."""
PASSED: Final = -1
"""Stands for the checksum of a batch."""
_RECORDS_PER_SLICE = 200


class Wanted(NamedTuple):
    """A record with a timestamp from `earliest` to `latest`, at or behind `starting_offset`."""

    earliest: int
    latest: int
    starting_offset: int


Found = tuple[int, int] | None
"""Timestamp and offset of a record."""
FoundRecords = dict[tuple[str, int, int, Wanted], Found | RecordFormatError | int]
"""The results of a request's long searches, by segment, position and checksum of the batch. With PASSED for a checksum it is the position
that a search has reached."""


class LongSearch(NotCached):
    """A batch is too large for the event loop."""

    def __init__(self, segment: "Segment", position: int, length: int, search: Callable[[int], None]) -> None:
        super().__init__(segment.filesystem, segment.path, position, length)
        self.search = search
        """Searches the batch, whose records may expand to the given bytes. Takes long; for any thread. Raises DecompressionTooLarge if
        they need more, and the limit of batches is higher."""

    def warm(self) -> None:
        """Searches the batch."""
        self.search(MAX_DECOMPRESSED_BYTES)


def candidates(
    segment: "Segment", file: File | UnwaitingFile, position: int, wanted: Wanted, found: FoundRecords | None
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position` on that may have such a record, because its largest timestamp is late enough.

    Without `found` the search may take long. Raises LongWalk, NotCached, RecordFormatError, OSError.
    """
    key = (segment.path, id(segment), PASSED, wanted)  # a cleaned segment has the same path
    passed = None if found is None else found.get(key)
    at = begun = max(passed, position) if isinstance(passed, int) else position
    try:
        for number, (at, header) in enumerate(batches_from(file, begun, segment.size)):
            if number == INLINE_BATCHES and found is not None:
                raise LongWalk(segment.filesystem, segment.path, at, header.size)
            if header.max_timestamp >= wanted.earliest:
                yield at, header
    except NotCached as cold:
        if found is not None:
            found[key] = at
        # As many bytes as were passed over, so that few reads are needed however long the segment is.
        cold.length = max(cold.length, min(at - position, MOST_AHEAD_BYTES))
        raise


def first_record(segment: "Segment", position: int, data: bytes, header: BatchHeader, wanted: Wanted, found: FoundRecords | None) -> Found:
    """The first such record of the batch `data`, which is at `position` of `segment`; None if there is none.

    Without `found` the search may take long. Raises LongSearch, RecordFormatError.
    """
    if found is None:
        return _search(offsets_and_timestamps_at(data, 0, header), wanted, no_yield)
    key = (segment.path, position, header.crc, wanted)
    if key in found:
        known = found[key]
        if isinstance(known, RecordFormatError):
            raise known
        assert not isinstance(known, int)  # PASSED is the checksum of no batch
        return known
    records = _records_of_small(data, header)
    if records is not None:
        return _search(records, wanted, no_yield)

    def search(max_bytes: int) -> None:
        try:
            found[key] = _search(offsets_and_timestamps_at(data, 0, header, max_bytes), wanted, PacedYield())
        except RecordFormatError as error:
            if isinstance(error, DecompressionTooLarge) and max_bytes < MAX_DECOMPRESSED_BYTES:
                raise
            found[key] = error

    raise LongSearch(segment, position, header.size, search)


def _records_of_small(data: bytes, header: BatchHeader) -> Iterator[tuple[int, int]] | None:
    """Offset and timestamp of each record of a batch that is searched at once; None for a large one."""
    if header.size > INLINE_PLAIN_BYTES:
        return None
    if header.is_message:
        return None if header.attributes & CODEC_MASK else offsets_and_timestamps_at(data, 0, header)
    if header.record_count > INLINE_RECORDS:
        return None
    try:
        return offsets_and_timestamps_at(data, 0, header, INLINE_BYTES)
    except DecompressionTooLarge:
        return None


def _search(records: Iterator[tuple[int, int]], wanted: Wanted, between: Callable[[], None]) -> Found:
    for number, (offset, timestamp) in enumerate(records, 1):
        if number % _RECORDS_PER_SLICE == 0:
            between()
        if wanted.earliest <= timestamp <= wanted.latest and offset >= wanted.starting_offset:
            return timestamp, offset
    return None
