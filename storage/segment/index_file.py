"""Implements the common part of offset and time index: a file of sorted entries of fixed size, with append, search and truncation.

Owned by a segment. As in Apache Kafka, the file of the active segment is preallocated to `segment.index.bytes`, and trimmed to its entries
when the segment is rolled or closed. But new entries are not written through a memory map. They are collected in memory and written to the
file a page at a time. So an append costs no system call, a full disk is an error instead of SIGBUS, and an index without lookups holds no
descriptor. This is safe: the part of an index above the recovery point is rebuilt after a crash, so it need not be on the disk before its
segment is flushed. Lookups map the file for reading, from the first one on.

Invariants: entries `[0, _written)` are in the file, entries `[_written, entries)` in `_tail`, entries `[0, _mapped)` in `_map`. The map is
dropped before the file is truncated.
"""

import mmap
from typing import Final

from ottla.protocol.cursors import fields
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.segment.cold_lookups import NotCached

TAIL_BYTES: Final = 4096
"""Entries of an index that are collected in memory before they are written to the file, in bytes."""
WARM_BYTES: Final = 8192
"""Entries at the end of an index that a search examines first, in bytes."""
STRAIGHT_LINES: Final = 8
"""Guesses by linear interpolation before a search of an index continues by bisection."""

_READ_ENTRIES = 4


class IndexFile:
    """Entries of `entry_size` bytes whose fields increase. With `full_at` entries it accepts no more appends."""

    KEPT_ENTRIES = 0
    """Slots reserved for the entries that roll and close add."""

    __slots__ = (
        "_filesystem",
        "_map",
        "_mapped",
        "_tail",
        "_view",
        "_written",
        "base_offset",
        "entries",
        "entry_size",
        "full_at",
        "length",
        "max_entries",
        "max_size",
        "path",
    )

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int, *, max_size: int, entry_size: int, length: int) -> None:
        self._filesystem = filesystem
        self._tail = bytearray()
        self._map: mmap.mmap | bytes = b""
        self._view: fields.Bytes = memoryview(self._map)
        self._mapped = 0
        self.path = path
        self.base_offset = base_offset
        self.max_size = max_size
        self.entry_size = entry_size
        self._set_length(length)
        # An existing file is assumed to be full of entries: it was trimmed, or it will be rebuilt.
        self.entries = self._written = self.max_entries

    def _set_length(self, length: int) -> None:
        self.length = length
        self.max_entries = length // self.entry_size
        self.full_at: int = self.max_entries - self.KEPT_ENTRIES

    def is_full(self) -> bool:
        """Whether the segment must be rolled before the next append."""
        return self.entries >= self.full_at

    def use_filesystem(self, filesystem: FileSystem) -> None:
        """Reach the file through another `FileSystem` from now on."""
        self._filesystem = filesystem

    def write_out(self) -> None:
        """Write the entries in memory to the file."""
        if self._tail:
            file = self._filesystem.open(self.path, create=True)
            file.pwrite(self._tail, self._written * self.entry_size)
            file.close()
            self._written = self.entries
            self._tail.clear()

    def spill(self) -> None:
        """Write the entries in memory to the file once they fill a page. After an OSError all of them are still in memory."""
        if len(self._tail) >= TAIL_BYTES:
            self.write_out()

    def put(self, entries: bytearray) -> None:
        """Write all entries of an empty file, with one system call."""
        self._tail += entries
        self.entries = len(entries) // self.entry_size
        self.write_out()

    def resize(self, size: int) -> None:
        """Set the file to `size` bytes, rounded down to whole entries. Entries beyond are lost."""
        size -= size % self.entry_size
        self.write_out()
        if size != self.length:
            self._unmap()
            file = self._filesystem.open(self.path, create=True)
            file.truncate(size)
            file.close()
            self._set_length(size)
            if self.entries > self.max_entries:
                self.entries = self._written = self.max_entries

    @property
    def has_room(self) -> bool:
        """Whether the file is preallocated, as for the active segment."""
        return self.length > self.entries * self.entry_size

    def make_room(self) -> None:
        """Preallocate the file for appends. If it has as many entries already, all of them stay, and the index is full."""
        if self.length != self.max_size - self.max_size % self.entry_size:
            self.resize(max(self.max_size, self.entries * self.entry_size))

    def trim(self) -> None:
        """Truncate the file after its last entry."""
        self.resize(self.entries * self.entry_size)

    def truncate_to_entries(self, entries: int) -> None:
        if entries >= self._written:
            del self._tail[(entries - self._written) * self.entry_size :]
            self.entries = entries
            return
        self._tail.clear()
        self._unmap()
        self.entries = self._written = entries
        # Bytes behind the cut must read as unused again, as in an index that was never longer.
        file = self._filesystem.open(self.path, create=True)
        file.truncate(entries * self.entry_size)
        file.truncate(self.length)
        file.close()

    def begin(self) -> None:
        """Become empty, with room for appends. The file does not exist yet: `allocate` or the first write of entries creates it."""
        self._tail.clear()
        self._unmap()
        self.entries = self._written = 0
        self._set_length(self.max_size - self.max_size % self.entry_size)

    def allocate(self) -> None:
        """Create the file, which `begin` does not create."""
        file = self._filesystem.open(self.path, create=True)
        file.truncate(self.length)
        file.close()

    def reset(self) -> None:
        """Become empty, with room for appends, whatever the file contained."""
        self.begin()
        file = self._filesystem.open(self.path, create=True)
        file.truncate(0)
        file.truncate(self.length)
        file.close()

    def raw_entries(self, first: int, count: int) -> bytes:
        """The bytes of entries `[first, first + count)`."""
        size = self.entry_size
        written = self._written
        if first >= written:
            at = (first - written) * size
            return bytes(self._tail[at : at + count * size])
        end = min(first + count, written)
        if self._mapped < end - first <= _READ_ENTRIES:
            # A map would hold a descriptor for the single entry that the first append reads.
            file = self._filesystem.open(self.path, read_only=True)
            data = file.pread((end - first) * size, first * size)
            file.close()
        else:
            data = self._mapping()[first * size : end * size]
        if first + count > written:
            data += self._tail[: (first + count - written) * size]
        return data

    def last_slot(self, target: int, at: int, is_long: bool = False) -> int:
        """The last slot whose number at byte `at` of the entry is at most `target`; -1 if there is none.

        The number has four bytes, or eight if it `is_long`. Searches the entries in memory first.
        """
        tail = self._tail
        size = self.entry_size
        slot = search(tail, len(tail) // size, size, at, is_long, target)
        if slot >= 0:
            return self._written + slot
        return search(self._mapped_entries(), self._written, size, at, is_long, target)

    def _mapping(self) -> mmap.mmap | bytes:
        data = self._map
        if self._mapped < self._written:
            file = self._filesystem.open(self.path, read_only=True)
            data = self._map = file.map(self._written * self.entry_size)
            self._view = memoryview(data)
            file.close()
            self._mapped = self._written
        return data

    def _mapped_entries(self) -> fields.Bytes:
        """The entries in the file."""
        if self._mapped < self._written:
            self._mapping()
        return self._view

    def check_cached(self) -> None:
        """Raises NotCached when a lookup would wait for the disk. An existing map counts as cached, because it was read recently."""
        if self._mapped < self._written:
            file = self._filesystem.open(self.path, read_only=True)
            length = self._written * self.entry_size
            is_cached = file.is_cached(length, 0)
            file.close()
            if not is_cached:
                raise NotCached(self._filesystem, self.path, 0, length)

    def release(self) -> None:
        """Drops the map, which holds a descriptor."""
        self._unmap()

    def _unmap(self) -> None:
        self._map = b""
        self._view = memoryview(b"")
        self._mapped = 0


def search(data: fields.Bytes, count: int, size: int, at: int, is_long: bool, target: int) -> int:
    """Of `count` entries of `size` bytes the last one whose number at byte `at` is at most `target`; -1 if there is none.

    Searches the last entries first, as Apache Kafka does: most lookups are for recent records, and so touch only pages that are in use
    anyway. Entries are spread rather evenly, so the answer is near a linear interpolation. After some guesses the search continues by
    bisection.
    """
    if not count:
        return -1
    high = count - 1
    above = _number(data, high * size + at, is_long)
    if above <= target:
        return high
    low = high - WARM_BYTES // size if high > WARM_BYTES // size else 0
    below = _number(data, low * size + at, is_long)
    if below > target:
        if not low:
            return -1
        high, above = low, below
        low = 0
        below = _number(data, at, is_long)
        if below > target:
            return -1
    lines = STRAIGHT_LINES
    while high - low > 1:
        slot = (low + high) // 2
        if lines:
            lines -= 1
            slot = low + (target - below) * (high - low) // (above - below)
            slot = low + 1 if slot <= low else high - 1 if slot >= high else slot
        number = _number(data, slot * size + at, is_long)
        if number <= target:
            low, below = slot, number
        else:
            high, above = slot, number
    return low


def _number(data: fields.Bytes, at: int, is_long: bool) -> int:
    return fields.read_long(data, at) if is_long else fields.read_number(data, at)
