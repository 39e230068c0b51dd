"""Maps timestamps to offsets in a segment: each entry has the largest timestamp of all records up to its offset.

12-byte entries: timestamp (int64), offset relative to the segment's base (int32). Entries are appended together with those of the offset
index. One more is appended when the segment is rolled or closed, so that the last entry has the segment's largest timestamp.
"""

import struct
from typing import NamedTuple, final

from ottla.protocol.cursors import fields
from ottla.protocol.records.batch import NO_TIMESTAMP
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.index_file import IndexFile

ENTRY_SIZE = 12

_ENTRY = struct.Struct(">qi")
_OFFSET_AT = 8


class TimestampOffset(NamedTuple):
    """A timestamp and its offset."""

    timestamp: int
    offset: int


@final
class TimeIndex(IndexFile):
    """A time index. Grows by `maybe_append`; timestamps increase, offsets do not decrease."""

    KEPT_ENTRIES = 1

    __slots__ = ("last_offset", "last_timestamp")

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int, max_size: int, length: int) -> None:
        super().__init__(filesystem, path, base_offset, max_size=max_size, entry_size=ENTRY_SIZE, length=length)
        self.last_timestamp: int = NO_TIMESTAMP
        self.last_offset = base_offset
        self._read_last_entry()

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none."""
        return TimestampOffset(self.last_timestamp, self.last_offset)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one. Raises CorruptIndex when the offset is smaller."""
        self.maybe_add(timestamp, offset)
        self.spill()

    def maybe_add(self, timestamp: int, offset: int) -> None:
        """Add an entry in memory only, without a limit. The caller calls `spill` later."""
        if timestamp > self.last_timestamp:
            if offset < self.last_offset and self.entries:
                raise CorruptIndex(self.path, f"offset {offset} appended after {self.last_offset}")
            self._tail += fields.pack_int64_int32(timestamp, offset - self.base_offset)
            self.entries += 1
            self.last_timestamp = timestamp
            self.last_offset = offset

    def fill(self, entries: bytearray) -> None:
        """Write all entries of an index that is empty."""
        self.put(entries)
        self._read_last_entry()

    def take_back(self, entries: int, last_timestamp: int, last_offset: int) -> None:
        """Return to `entries` entries, of which the given one is the last. For entries that could not be written."""
        self.truncate_to_entries(entries)
        self.last_timestamp = last_timestamp
        self.last_offset = last_offset

    def entry(self, slot: int) -> TimestampOffset:
        timestamp, relative = _ENTRY.unpack(self.raw_entries(slot, 1))
        return TimestampOffset(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`; (-1, base offset) if there is none."""
        slot = self.last_slot(timestamp, 0, True)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and above `offset`."""
        self.truncate_to_entries(self.last_slot(offset - 1 - self.base_offset, _OFFSET_AT) + 1)
        self._read_last_entry()

    def reset(self) -> None:
        super().reset()
        self._read_last_entry()

    def check(self) -> None:
        """Raises CorruptIndex if the file cannot belong to this segment."""
        if self.length % ENTRY_SIZE:
            raise CorruptIndex(self.path, f"{self.length} bytes are not a multiple of {ENTRY_SIZE}")
        if self.entries:
            first, last = self.entry(0), self.last_entry
            if last.timestamp < first.timestamp:
                raise CorruptIndex(self.path, f"last timestamp {last.timestamp} is below the first one, {first.timestamp}")
            if last.offset < self.base_offset:
                raise CorruptIndex(self.path, f"last offset {last.offset} is below the base offset {self.base_offset}")

    def all_entries(self) -> list[TimestampOffset]:
        return [TimestampOffset(t, self.base_offset + o) for t, o in _ENTRY.iter_unpack(self.raw_entries(0, self.entries))]

    def _read_last_entry(self) -> None:
        last = self.entry(self.entries - 1) if self.entries else TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.last_timestamp = last.timestamp
        self.last_offset = last.offset
