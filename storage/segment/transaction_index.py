"""Lists the aborted transactions whose markers are in a segment.

34-byte entries in the order of their markers: version (int16, 0), producer id, first offset, last offset (that of the marker), last stable
offset after the marker (int64 each). The file is created with the first entry. Fetches of committed records read it. It is mostly small, so
it is read as a whole, and its bytes are kept until `release`. A producer that ends every batch with an abort may make it a quarter as large
as the log. As objects, a million entries would take 300 MB, and a second of the event loop.
"""

import struct
import sys
from bisect import bisect_left
from typing import Final, NamedTuple

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.cold_lookups import NotCached

ENTRY_SIZE = 34
CURRENT_VERSION = 0
ALL: Final = sys.maxsize
"""More transactions than any index has."""

_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET: Final = struct.Struct(">q")
_LAST_OFFSET_AT: Final = 18


class AbortedTransaction(NamedTuple):
    """One aborted transaction. Readers of committed records skip the records of `producer_id` in `[first_offset, last_offset]`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """A transaction index. Grows by `append`, or by `add` and `write_out`; last offsets increase."""

    __slots__ = ("_data", "_filesystem", "_size", "path", "start_offset")

    def __init__(self, filesystem: FileSystem, path: str, start_offset: int, size: int | None) -> None:
        """`size` is the size of the file; None if there is none."""
        self._filesystem = filesystem
        self._data: bytearray | None = None
        """All entries; None while they are not needed."""
        self.path = path
        self.start_offset = start_offset
        self._size = size

    def use_filesystem(self, filesystem: FileSystem) -> None:
        """Reach the file through another `FileSystem` from now on."""
        self._filesystem = filesystem

    def release(self) -> None:
        """Drop the entries; the next use reads them again."""
        self._data = None

    def exists(self) -> bool:
        return self._size is not None

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry, and write it. Raises CorruptIndex when its last offset is not above that of the last entry."""
        self.add(transaction)
        self.write_out()

    def add(self, transaction: AbortedTransaction) -> None:
        """Add an entry in memory only. The caller calls `write_out` before it does anything else with the index."""
        data = self._all()
        before = self._last_offset_at(len(data) // ENTRY_SIZE - 1) if data else -1
        if before >= transaction.last_offset:
            raise CorruptIndex(self.path, f"last offset {transaction.last_offset} appended after {before}")
        data += _ENTRY.pack(CURRENT_VERSION, *transaction)

    def write_out(self) -> None:
        """Write the entries that are in memory only, with one system call."""
        position = (self._size or 0) // ENTRY_SIZE * ENTRY_SIZE
        added = b"" if self._data is None else self._data[position:]
        if added:
            file = self._filesystem.open(self.path, create=True)
            file.pwrite(added, position)
            file.close()
            self._size = position + len(added)

    def check_cached(self) -> None:
        """Raises NotCached when reading the index would wait for the disk."""
        if self._size and self._data is None:
            file = self._filesystem.open(self.path, read_only=True)
            is_cached = file.is_cached(self._size, 0)
            file.close()
            if not is_cached:
                raise NotCached(self._filesystem, self.path, 0, self._size)

    def entries(self) -> list[AbortedTransaction]:
        """All entries, as many objects. Raises CorruptIndex for an unknown version."""
        return [AbortedTransaction(*fields) for _, *fields in _ENTRY.iter_unpack(self._all())]

    def _all(self) -> bytearray:
        data = self._data
        if data is None:
            data = self._data = self._read()
        return data

    def _read(self) -> bytearray:
        if not self._size:
            return bytearray()
        data = bytearray(self._filesystem.read_file(self.path))
        del data[len(data) // ENTRY_SIZE * ENTRY_SIZE :]
        if data[::ENTRY_SIZE].count(0) + data[1::ENTRY_SIZE].count(0) < 2 * (len(data) // ENTRY_SIZE):
            for version, *_ in _ENTRY.iter_unpack(data):
                if version > CURRENT_VERSION:
                    raise CorruptIndex(self.path, f"unknown version {version}")
        return data

    def _last_offset_at(self, slot: int) -> int:
        offset: int
        (offset,) = _LAST_OFFSET.unpack_from(self._all(), slot * ENTRY_SIZE + _LAST_OFFSET_AT)
        return offset

    def _first_slot(self, last_offset: int) -> int:
        """The slot of the first transaction whose marker is at or above the offset."""
        return bisect_left(range(len(self._all()) // ENTRY_SIZE), last_offset, key=self._last_offset_at)

    def collect(self, fetch_offset: int, upper_bound_offset: int, at_most: int = ALL) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap `[fetch_offset, upper_bound_offset)`, and whether later segments can be skipped.

        Returns only the first `at_most` of them.
        """
        found: list[AbortedTransaction] = []
        data = self._all()
        # Those before have ended below the range. Each of their last stable offsets is at most the offset behind its marker.
        later = memoryview(data)[self._first_slot(fetch_offset) * ENTRY_SIZE :]
        for _, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(later):
            if first_offset < upper_bound_offset:
                found.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))
            if last_stable_offset >= upper_bound_offset:
                return found, True
            if len(found) >= at_most:
                break
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose marker is at or above `offset`."""
        size = self._first_slot(offset) * ENTRY_SIZE
        if size < len(self._all()):
            self._truncate(size)

    def reset(self) -> None:
        if self._size:
            self._truncate(0)

    def check(self) -> None:
        """Raises CorruptIndex if the file cannot belong to this segment.

        Apache Kafka does not check the order, because its readers go through all entries.
        """
        previous = self.start_offset - 1
        for _, _, _, last_offset, _ in _ENTRY.iter_unpack(self._read()):
            if last_offset < self.start_offset:
                raise CorruptIndex(self.path, f"last offset {last_offset} is below the base offset {self.start_offset}")
            if last_offset <= previous:
                raise CorruptIndex(self.path, f"last offset {last_offset} follows {previous}")
            previous = last_offset

    def _truncate(self, size: int) -> None:
        self._data = None
        file = self._filesystem.open(self.path)
        file.truncate(size)
        file.close()
        self._size = size
