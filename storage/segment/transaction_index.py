"""Lists the aborted transactions whose markers are in a segment.

34-byte entries in the order of their markers: version (int16, 0), producer id, first offset, last offset (that of the marker), last stable
offset after the marker (int64 each). The file is created with the first entry. Fetches of committed records read it. It is mostly small, so
it is read as a whole, and its bytes are kept until `release`. A producer that ends every batch with an abort may make it a quarter as large
as the log. As objects, a million entries would take 300 MB, and a second of the event loop.
"""

import struct
import sys
from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.cold_lookups import NotCached

ENTRY_SIZE = 34
CURRENT_VERSION = 0
ALL: Final = sys.maxsize
"""More transactions than any index has."""

_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET: Final = struct.Struct(">q")
_LAST_OFFSET_AT: Final = 18
_ENTRIES_AT_ONCE: Final = 1 << 15
"""Entries that are read from a file at once, a megabyte."""
_FEW_ENTRIES: Final = 120
"""Entries that a search reads first: a page of the file."""


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
        before = self._last_offset() if data else -1
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

    def _last_offset(self) -> int:
        offset: int
        (offset,) = _LAST_OFFSET.unpack_from(self._all(), len(self._all()) - ENTRY_SIZE + _LAST_OFFSET_AT)
        return offset

    def collect(self, fetch_offset: int, upper_bound_offset: int, at_most: int = ALL) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap `[fetch_offset, upper_bound_offset)`, and whether later segments can be skipped.

        Returns only the first `at_most` of them.
        """
        data = memoryview(self._all())
        return collect(lambda at, size: data[at : at + size], len(data), fetch_offset, upper_bound_offset, at_most)

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose marker is at or above `offset`."""
        data = memoryview(self._all())
        size = _first_at(lambda at, size: data[at : at + size], len(data), offset)
        if size < len(data):
            self._truncate(size)

    def reset(self) -> None:
        if self._size:
            self._truncate(0)

    def check(self) -> None:
        """Raises CorruptIndex if the file cannot belong to this segment.

        Apache Kafka does not check the order, because its readers go through all entries.
        """
        if not self._size:
            return
        file = self._filesystem.open(self.path, read_only=True)
        try:
            self._check_order(file)
        finally:
            file.close()

    def _check_order(self, file: File) -> None:
        previous = self.start_offset - 1
        at = 0
        while data := file.pread(_ENTRIES_AT_ONCE * ENTRY_SIZE, at):
            at += len(data)
            for version, _, _, last_offset, _ in _ENTRY.iter_unpack(memoryview(data)[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
                if version > CURRENT_VERSION:
                    raise CorruptIndex(self.path, f"unknown version {version}")
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


Read = Callable[[int, int], bytes | memoryview]
"""Returns the bytes of an index at a position, of this length; fewer only at its end."""


def collect(read: Read, size: int, fetch_offset: int, upper_bound_offset: int, at_most: int) -> tuple[list[AbortedTransaction], bool]:
    """Does what `TransactionIndex.collect` does, in an index of `size` bytes that is read piece by piece."""
    found: list[AbortedTransaction] = []
    size = size // ENTRY_SIZE * ENTRY_SIZE
    # Those before have ended below the range. Each of their last stable offsets is at most the offset behind its marker.
    at = _first_at(read, size, fetch_offset)
    entries = _FEW_ENTRIES
    while at < size:
        piece = read(at, min(entries * ENTRY_SIZE, size - at))
        at += len(piece)
        for _, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(piece):
            if first_offset < upper_bound_offset:
                found.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))
            if last_stable_offset >= upper_bound_offset:
                return found, True
            if len(found) >= at_most:
                return found, False
        entries = min(8 * entries, _ENTRIES_AT_ONCE)
    return found, False


def _first_at(read: Read, size: int, last_offset: int) -> int:
    """The position of the first transaction whose marker is at or above the offset."""

    def last_offset_at(slot: int) -> int:
        found: int
        (found,) = _LAST_OFFSET.unpack_from(read(slot * ENTRY_SIZE, ENTRY_SIZE), _LAST_OFFSET_AT)
        return found

    return bisect_left(range(size // ENTRY_SIZE), last_offset, key=last_offset_at) * ENTRY_SIZE
