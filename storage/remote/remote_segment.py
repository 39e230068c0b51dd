"""Represents a segment in the remote store for searches: its indexes are on this broker, its records as far as they are cached.

`IndexCache` makes it. The searches are those of every segment; they read through the `PresentBytes` of the segment's chunks.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

from ottla.storage.disk.file_names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.segment.batch_scan import batches_from
from ottla.storage.segment.cold_lookups import NotCached, UnwaitingFile
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.record_search import FoundRecords
from ottla.storage.segment.segment import RecordPosition, Segment
from ottla.storage.segment.time_index import TimeIndex, TimestampOffset
from ottla.storage.segment.transaction_bounds import ENTRY_SIZE
from ottla.storage.segment.transaction_index import AbortedTransaction, TransactionIndex, TransactionSearch, Walk, steps_of

SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_WARM_BYTES: Final = 1 << 20
"""Bytes of a transaction index that a thread reads into the page cache for a search."""
NONE_OPEN: Final = (1 << 63) - 1
"""Stands for the first offset of the open transactions where there are none."""


class RemoteSegment(Segment):
    """The indexes of one copy. Its records are reached through the files that its searches get as an argument."""

    __slots__ = ("_is_proved", "_name", "_transaction_bytes", "_transactions", "entry", "first_open_offset", "index_bytes")

    def __init__(
        self, filesystem: FileSystem, name: str, entry: SegmentEntry, sizes: tuple[int, int, int], *, is_proved: bool = True
    ) -> None:
        """The index files are `name` and a suffix of SUFFIXES each, of these sizes. Raises CorruptIndex if they cannot be the segment's.

        `is_proved` tells whether checksums, or the records, prove the offset index and the time index. Otherwise each search compares
        the entry that it uses with the records. Reads the last entries of the files.
        """
        self.filesystem = filesystem
        self._is_proved = is_proved
        self._name = name
        self._file = None
        self._rebuild = None
        self.entry = entry
        self.base_offset = entry.start_offset
        self.size = entry.size
        self.index_bytes = sum(sizes)
        self.first_open_offset: int | None = None
        """The first offset of the transactions that are open at the end, or NONE_OPEN; None while that is not known."""
        self._offset_index = OffsetIndex(filesystem, name + OFFSET_INDEX_SUFFIX, entry.start_offset, sizes[0], sizes[0])
        self._time_index = TimeIndex(filesystem, name + TIME_INDEX_SUFFIX, entry.start_offset, sizes[1], sizes[1])
        self._transaction_index = None
        self._transaction_bytes = sizes[2]
        self._transactions = TransactionSearch()
        self._offset_index.check(entry.size)
        self._time_index.check()
        TransactionIndex(filesystem, name + TRANSACTION_INDEX_SUFFIX, entry.start_offset, sizes[2]).check()
        if self._offset_index.last_offset > entry.end_offset:
            raise CorruptIndex(self._offset_index.path, f"its last offset is {self._offset_index.last_offset}, behind {entry.end_offset}")
        self.note_max_timestamp(self._time_index.last_timestamp, self._time_index.last_offset)

    def path_of(self, suffix: str) -> str:
        return self._name + suffix

    def find_by_timestamp(
        self, timestamp_ms: int, starting_offset: int, file: File | UnwaitingFile | None = None, found: FoundRecords | None = None
    ) -> RecordPosition | None:
        """Finds the record as every segment does. Raises CorruptIndex, too, if the entry of the time index is not that of a batch.

        The entry of an index without a proof is one below the timestamp: batches with the same largest timestamp look alike.
        """
        assert file is not None
        if self._is_proved:
            return super().find_by_timestamp(timestamp_ms, starting_offset, file, found)
        entry = self.time_index.lookup(timestamp_ms - 1)
        if entry.timestamp >= 0 and entry.offset >= starting_offset:
            self._check_entry(entry, file)
        return self.find_by_timestamp_from(max(entry.offset, starting_offset), timestamp_ms, starting_offset, file, found)

    def _check_entry(self, entry: TimestampOffset, file: File | UnwaitingFile) -> None:
        for _, header in batches_from(file, self.index_position(entry.offset, file), self.size):
            if header.last_offset >= entry.offset:
                if header.max_timestamp == entry.timestamp and header.base_offset <= entry.offset:
                    return
                break
        raise CorruptIndex(
            self.path_of(TIME_INDEX_SUFFIX), f"no batch with offset {entry.offset} has the largest timestamp {entry.timestamp}"
        )

    def aborted_transactions(self, start: int, end: int, at_most: int, walk: Walk | None) -> tuple[list[AbortedTransaction], bool]:
        """Finds what `TransactionIndex.collect` does, and reads only that part of the index: of it only bounds stay in memory.

        With a `walk` it raises NotCached instead of waiting for the disk, and LongWalk.
        """
        count = self._transaction_bytes // ENTRY_SIZE
        if not count:
            return [], False
        path = self.path_of(TRANSACTION_INDEX_SUFFIX)
        file = self.filesystem.open(path, read_only=True)
        try:
            read = partial(self._read_transactions, file, walk is None)
            return self._transactions.collect(read, count, start, end, at_most, steps_of(walk, self.filesystem, path))
        finally:
            file.close()

    def _read_transactions(self, file: File, may_wait: bool, slot: int, count: int) -> bytes:
        at, size = slot * ENTRY_SIZE, count * ENTRY_SIZE
        data = file.pread(size, at) if may_wait else file.pread_cached(size, at)
        if data is None:  # a search goes on from here, mostly
            raise NotCached(self.filesystem, file.path, at, max(size, _WARM_BYTES))
        if len(data) != size:
            raise CorruptIndex(file.path, f"it ends at byte {at + len(data)} of {self._transaction_bytes}")
        return data

    def rebuild_indexes(self, may_wait: bool = True) -> NoReturn:
        """Raises CorruptIndex: an index that does not fit the records is read again."""
        raise CorruptIndex(self._name, "it does not fit the records of the remote segment")

    def first_batch_in(self, start: int, end: int) -> int | None:
        """Returns the position of the first batch that begins in [start, end), as far as the index has one."""
        if not start:
            return 0
        index = self.offset_index
        offset, _ = index.lookup_position(start - 1)
        position = index.bracket(offset)[3]
        return position if start <= position < end else None
