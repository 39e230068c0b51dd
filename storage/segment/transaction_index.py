"""Lists the aborted transactions whose markers are in a segment.

34-byte entries in the order of their markers: version (int16, 0), producer id, first offset, last offset (that of the marker), last stable
offset after the marker (int64 each). The file is created with the first entry. Fetches of committed records read it. It is small, so it is
read as a whole, and its entries are kept until `release` finds them unused.
"""

import struct
from bisect import bisect_left
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.cold_lookups import NotCached

ENTRY_SIZE = 34
CURRENT_VERSION = 0

_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET: Final = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """One aborted transaction. Readers of committed records skip the records of `producer_id` in `[first_offset, last_offset]`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """A transaction index. Grows by `append`, or by `add` and `write_out`; last offsets increase."""

    __slots__ = ("_entries", "_filesystem", "_size", "path", "start_offset")

    def __init__(self, filesystem: FileSystem, path: str, start_offset: int, size: int | None) -> None:
        """`size` is the size of the file; None if there is none."""
        self._filesystem = filesystem
        self._entries: list[AbortedTransaction] | None = None
        self.path = path
        self.start_offset = start_offset
        self._size = size

    def use_filesystem(self, filesystem: FileSystem) -> None:
        """Reach the file through another `FileSystem` from now on."""
        self._filesystem = filesystem

    def release(self) -> None:
        """Drop the entries; the next use reads them again."""
        self._entries = None

    def exists(self) -> bool:
        return self._size is not None

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry, and write it. Raises CorruptIndex when its last offset is not above that of the last entry."""
        self.add(transaction)
        self.write_out()

    def add(self, transaction: AbortedTransaction) -> None:
        """Add an entry in memory only. The caller calls `write_out` before it does anything else with the index."""
        entries = self.entries()
        if entries and entries[-1].last_offset >= transaction.last_offset:
            raise CorruptIndex(self.path, f"last offset {transaction.last_offset} appended after {entries[-1].last_offset}")
        entries.append(transaction)

    def write_out(self) -> None:
        """Write the entries that are in memory only, with one system call."""
        written = (self._size or 0) // ENTRY_SIZE
        added = [] if self._entries is None else self._entries[written:]
        if added:
            position = written * ENTRY_SIZE
            data = b"".join(_ENTRY.pack(CURRENT_VERSION, *transaction) for transaction in added)
            file = self._filesystem.open(self.path, create=True)
            file.pwrite(data, position)
            file.close()
            self._size = position + len(data)

    def check_cached(self) -> None:
        """Raises NotCached when reading the index would wait for the disk."""
        if self._size and self._entries is None:
            file = self._filesystem.open(self.path, read_only=True)
            is_cached = file.is_cached(self._size, 0)
            file.close()
            if not is_cached:
                raise NotCached(self._filesystem, self.path, 0, self._size)

    def entries(self) -> list[AbortedTransaction]:
        """All entries; the caller must not change the list. Raises CorruptIndex for an unknown version."""
        found = self._entries
        if found is None:
            found = self._entries = self._read()
        return found

    def _read(self) -> list[AbortedTransaction]:
        if not self._size:
            return []
        data = self._filesystem.read_file(self.path)
        found = []
        for version, *fields in _ENTRY.iter_unpack(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
            if version > CURRENT_VERSION:
                raise CorruptIndex(self.path, f"unknown version {version}")
            found.append(AbortedTransaction(*fields))
        return found

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap `[fetch_offset, upper_bound_offset)`, and whether later segments can be skipped."""
        found = []
        entries = self.entries()
        # Those before have ended below the range. Each of their last stable offsets is at most the offset behind its marker.
        for at in range(bisect_left(entries, fetch_offset, key=_LAST_OFFSET), len(entries)):
            transaction = entries[at]
            if transaction.first_offset < upper_bound_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose marker is at or above `offset`."""
        for slot, transaction in enumerate(self.entries()):
            if transaction.last_offset >= offset:
                self._truncate(slot * ENTRY_SIZE)
                return

    def reset(self) -> None:
        if self._size:
            self._truncate(0)

    def check(self) -> None:
        """Raises CorruptIndex if the file cannot belong to this segment.

        Apache Kafka does not check the order, because its readers go through all entries.
        """
        previous = self.start_offset - 1
        for transaction in self._read():
            last_offset = transaction.last_offset
            if last_offset < self.start_offset:
                raise CorruptIndex(self.path, f"last offset {last_offset} is below the base offset {self.start_offset}")
            if last_offset <= previous:
                raise CorruptIndex(self.path, f"last offset {last_offset} follows {previous}")
            previous = last_offset

    def _truncate(self, size: int) -> None:
        self._entries = None
        file = self._filesystem.open(self.path)
        file.truncate(size)
        file.close()
        self._size = size
