"""Maps offsets to positions in the log file of a segment.

8-byte entries: offset relative to the segment's base (int32), position of the batch that ends with that offset (int32). Sparse: one entry
per `index.interval.bytes` or batch, whichever is larger.
"""

import struct
from typing import Final, NamedTuple, final

from ottla.protocol.cursors import fields
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.index_file import IndexFile, search

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""Largest offset of an index entry, relative to the segment's base offset."""
ENTRY_SIZE: Final = 8
"""Bytes of an entry of an offset index."""
POSITION_AT: Final = 4
"""Place of the position in an entry, in bytes. The offset is at 0."""

_ENTRY = struct.Struct(">ii")
_unpack = _ENTRY.unpack_from


class OffsetPosition(NamedTuple):
    """An offset and the position of its batch in the log file."""

    offset: int
    position: int


@final
class OffsetIndex(IndexFile):
    """An offset index. Grows by `append`; offsets increase."""

    __slots__ = ("last_offset",)

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int, max_size: int, length: int) -> None:
        super().__init__(filesystem, path, base_offset, max_size=max_size, entry_size=ENTRY_SIZE, length=length)
        self.last_offset = self._last_offset()

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises CorruptIndex when `offset` is not above the last one: the offsets of the log file would be out of order."""
        self.add(offset, position)
        self.spill()

    def add(self, offset: int, position: int) -> None:
        """Add an entry in memory only, without a limit. The caller calls `spill` later."""
        if offset <= self.last_offset and self.entries:
            raise CorruptIndex(self.path, f"offset {offset} appended after {self.last_offset}")
        self._tail += fields.pack_two_int32(offset - self.base_offset, position)
        self.entries += 1
        self.last_offset = offset

    def fill(self, entries: bytearray) -> None:
        """Write all entries of an index that is empty."""
        self.put(entries)
        self.last_offset = self._last_offset()

    def take_back(self, entries: int, last_offset: int) -> None:
        """Return to `entries` entries, the last of which has `last_offset`. For entries that could not be written."""
        self.truncate_to_entries(entries)
        self.last_offset = last_offset

    def entry(self, slot: int) -> OffsetPosition:
        relative, position = _unpack(self.raw_entries(slot, 1))
        return OffsetPosition(self.base_offset + relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`; the beginning of the segment if there is none."""
        entry_offset, position, _, _ = self.bracket(offset)
        return OffsetPosition(entry_offset, position)

    def bracket(self, offset: int) -> tuple[int, int, int, int]:
        """The last entry at or below `offset` and the next one, as (offset, position, offset, position).

        The batch that holds `offset` begins between them, often at the second. (base offset, 0) stands for the beginning of the segment,
        (-1, -1) for its end.
        """
        base_offset = self.base_offset
        relative = offset - base_offset
        target = relative if relative < MAX_RELATIVE_OFFSET else MAX_RELATIVE_OFFSET
        is_in_memory = self._is_in_memory(target, 0)
        entries: fields.Bytes
        if is_in_memory:
            entries = self._tail
            count = self.entries - self._written
        else:
            entries = self._mapped_entries()
            count = self._written
        slot = search(entries, count, ENTRY_SIZE, 0, False, target)
        first = position = 0
        if slot >= 0:
            first, position = fields.read_entry(entries, slot * ENTRY_SIZE)
        slot += 1
        if slot < count:
            second, next_position = fields.read_entry(entries, slot * ENTRY_SIZE)
        elif is_in_memory or not self._tail:
            return base_offset + first, position, -1, -1
        else:
            second, next_position = fields.read_new_entry(self._tail, 0)
        return base_offset + first, position, base_offset + second, next_position

    def lookup_position(self, position: int) -> tuple[int, int]:
        """The offset and position of the last entry whose batch begins at or before `position`."""
        entries: fields.Bytes
        if self._is_in_memory(position, POSITION_AT):
            entries = self._tail
            count = self.entries - self._written
        else:
            entries = self._mapped_entries()
            count = self._written
        slot = search(entries, count, ENTRY_SIZE, POSITION_AT, False, position)
        if slot < 0:
            return self.base_offset, 0
        offset, found = fields.read_entry(entries, slot * ENTRY_SIZE)
        return self.base_offset + offset, found

    def _is_in_memory(self, target: int, at: int) -> bool:
        """Whether the last entry with a number of at most `target` at byte `at` is still in memory only."""
        return len(self._tail) > 0 and fields.read_new_number(self._tail, at) <= target

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and above `offset`."""
        self.truncate_to_entries(self.last_slot(offset - 1 - self.base_offset, 0) + 1)
        self.last_offset = self._last_offset()

    def reset(self) -> None:
        super().reset()
        self.last_offset = self.base_offset

    def check(self, log_size: int) -> None:
        """Raises CorruptIndex if the file cannot belong to this segment."""
        if self.length % ENTRY_SIZE:
            raise CorruptIndex(self.path, f"{self.length} bytes are not a multiple of {ENTRY_SIZE}")
        if self.entries:
            last = self.entry(self.entries - 1)
            # The first batch never gets an entry, so no entry has the base offset or position 0. Preallocated space reads like such an
            # entry.
            if last.offset <= self.base_offset or not 0 < last.position < log_size:
                raise CorruptIndex(self.path, f"last entry is offset {last.offset} at {last.position} in a log file of {log_size} bytes")

    def all_entries(self) -> list[OffsetPosition]:
        return [OffsetPosition(self.base_offset + o, p) for o, p in _ENTRY.iter_unpack(self.raw_entries(0, self.entries))]

    def _last_offset(self) -> int:
        return self.entry(self.entries - 1).offset if self.entries else self.base_offset
