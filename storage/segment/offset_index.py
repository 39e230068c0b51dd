"""The offset index of a segment: which byte of the log file to begin at when an offset is looked for.

8-byte entries: offset relative to the segment's base (int32), position of the batch that ends with that offset (int32). Sparse: one
entry per `index.interval.bytes` or batch, whichever is larger.
"""

import mmap
import struct
from typing import NamedTuple, cast

from protocol.cursors import fields
from storage.disk.filesystem import FileSystem
from storage.errors import CorruptIndex
from storage.segment.index_file import IndexFile
from storage.segment.limits import MAX_RELATIVE_OFFSET

ENTRY_SIZE = 8

_ENTRY = struct.Struct(">ii")
_unpack = _ENTRY.unpack_from
_unpack_two = struct.Struct(">iiii").unpack_from
_OFFSET = struct.Struct(">i")
_first_offset = _OFFSET.unpack_from
_POSITION = struct.Struct(">4xi")
_TRIES = 2
_NO_LINE = (0, 0, 0, 0, 0)


class OffsetPosition(NamedTuple):
    """An offset and where its batch begins in the log file."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """Grows by `append`; offsets increase."""

    __slots__ = ("_line", "_line_entries", "last_offset")

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int, max_size: int, length: int) -> None:
        super().__init__(filesystem, path, base_offset, max_size=max_size, entry_size=ENTRY_SIZE, length=length)
        self._line = _NO_LINE
        self._line_entries = 0
        self.last_offset = self._last_offset()

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises CorruptIndex when `offset` is not above the last one: the log file then holds offsets out of order."""
        self.add(offset, position)
        self.spill()

    def add(self, offset: int, position: int) -> None:
        """The same in memory, however much is there; `spill` is to follow."""
        if offset <= self.last_offset and self.entries:
            raise CorruptIndex(self.path, f"offset {offset} appended after {self.last_offset}")
        self._tail += fields.pack_two_int32(offset - self.base_offset, position)
        self.entries += 1
        self.last_offset = offset

    def take_back(self, entries: int, last_offset: int) -> None:
        """There are `entries` again, of which the last has that offset: what was added since could not be written."""
        self.truncate_to_entries(entries)
        self.last_offset = last_offset

    def entry(self, slot: int) -> OffsetPosition:
        relative, position = _unpack(self.raw_entries(slot, 1))
        return OffsetPosition(self.base_offset + relative, position)

    def entries_around(self, offset: int) -> tuple[mmap.mmap | bytes | bytearray, int]:
        """The entries among which that offset is found, and how many: those in the file, or those behind them."""
        tail = self._tail
        if tail and _first_offset(tail)[0] <= offset - self.base_offset:
            return tail, len(tail) // ENTRY_SIZE
        return (self._map if self._mapped == self._written else self._mapping()), self._written

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`, the beginning of the segment if there is none."""
        slot = self.last_slot_at_most(_OFFSET, min(offset - self.base_offset, MAX_RELATIVE_OFFSET))
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def bracket(self, offset: int) -> tuple[int, int, int, int]:
        """The last entry at or below `offset` and the one behind it, as (offset, position, offset, position).

        The batch that holds `offset` begins between the two, often at the second. (base offset, 0) stands for the beginning of the segment,
        (-1, -1) for its end. Plain numbers, because a read begins with this: where two OffsetPositions cost 3 µs, this takes 2, and half as
        long where entries are spread evenly, as they are where one producer fills its batches.
        """
        base_offset = self.base_offset
        relative = offset - base_offset
        low, high, _, _, slots = self._line if self._line_entries == self._written else self._draw_line()
        if low <= relative < high:
            slot = (relative - low) * slots // (high - low)
            for _ in range(_TRIES):
                first, position, second, next_position = _unpack_two(self._map, slot * ENTRY_SIZE)
                if relative < first:
                    slot -= 1
                elif relative >= second:
                    slot += 1
                else:
                    return base_offset + first, position, base_offset + second, next_position
        slot = self.last_slot_at_most(_OFFSET, relative if relative < MAX_RELATIVE_OFFSET else MAX_RELATIVE_OFFSET)
        following = slot + 1
        if slot < 0:
            first, position = 0, 0
        else:
            first, position = self._entry(slot)
        if following == self.entries:
            return base_offset + first, position, -1, -1
        second, next_position = self._entry(following)
        return base_offset + first, position, base_offset + second, next_position

    def _entry(self, slot: int) -> tuple[int, int]:
        in_tail = slot - self._written
        if in_tail >= 0:
            return cast("tuple[int, int]", _unpack(self._tail, in_tail * ENTRY_SIZE))
        return cast("tuple[int, int]", _unpack(self._mapping(), slot * ENTRY_SIZE))

    def _draw_line(self) -> tuple[int, int, int, int, int]:
        """Relative offsets and positions of the first and the last entry in the file, and how many steps lie between.

        A guess on the straight line between the two, and one entry beside it, often find what is looked for with one or two reads.
        """
        written = self._written
        if written < 2:
            return _NO_LINE
        data = self._mapping()
        low, low_position = _unpack(data, 0)
        high, high_position = _unpack(data, (written - 1) * ENTRY_SIZE)
        self._line = line = (low, high, low_position, high_position, written - 1)
        self._line_entries = written
        return line

    def _unmap(self) -> None:
        super()._unmap()
        self._line = _NO_LINE
        self._line_entries = 0

    def lookup_position(self, position: int) -> tuple[int, int]:
        """The last entry whose batch begins at or before `position`: its offset, and where that batch begins."""
        _, _, low, high, slots = self._line if self._line_entries == self._written else self._draw_line()
        if low <= position < high:
            slot = (position - low) * slots // (high - low)
            for _ in range(_TRIES):
                offset, first, _, second = _unpack_two(self._map, slot * ENTRY_SIZE)
                if position < first:
                    slot -= 1
                elif position >= second:
                    slot += 1
                else:
                    return self.base_offset + offset, first
        slot = self.last_slot_at_most(_POSITION, position)
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and above `offset`."""
        self.truncate_to_entries(self.last_slot_at_most(_OFFSET, offset - 1 - self.base_offset) + 1)
        self.last_offset = self._last_offset()

    def reset(self) -> None:
        super().reset()
        self.last_offset = self.base_offset

    def check(self, log_size: int) -> None:
        """Raises CorruptIndex if the file cannot be this segment's index."""
        if self.length % ENTRY_SIZE:
            raise CorruptIndex(self.path, f"{self.length} bytes are not a multiple of {ENTRY_SIZE}")
        if self.entries:
            last = self.entry(self.entries - 1)
            # The first batch never gets an entry, so none says the base offset or position 0: that is how preallocated room reads.
            if last.offset <= self.base_offset or not 0 < last.position < log_size:
                raise CorruptIndex(self.path, f"last entry is offset {last.offset} at {last.position} in a log file of {log_size} bytes")

    def all_entries(self) -> list[OffsetPosition]:
        return [OffsetPosition(self.base_offset + o, p) for o, p in _ENTRY.iter_unpack(self.raw_entries(0, self.entries))]

    def _last_offset(self) -> int:
        return self.entry(self.entries - 1).offset if self.entries else self.base_offset
