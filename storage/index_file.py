"""What the offset index and the time index have in common: a file of entries of one size, sorted, appended to, searched, cut.

Owned by a segment. The file of the segment that is appended to is preallocated to `segment.index.bytes` and trimmed to its entries when
the segment is rolled or closed, as Apache Kafka does; but it is not memory-mapped. New entries gather in memory and go to the file a
page at a time: an append costs no system call, a full disk is an error instead of SIGBUS, and no index keeps a descriptor open. That is
safe because an index need not be complete on the disk before its segment is flushed: whatever lies above the recovery point is rebuilt
after a crash.

Invariant: entries `[0, _written)` are in the file, entries `[_written, entries)` in `_tail`.
"""

import struct
from bisect import bisect_right

from storage.filesystem import FileSystem

_TAIL_BYTES = 4096
_WARM_BYTES = 8192


class IndexFile:
    """Entries of `entry_size` bytes whose fields grow from entry to entry."""

    __slots__ = (
        "_filesystem",
        "_tail",
        "_window",
        "_window_first",
        "_written",
        "base_offset",
        "entries",
        "entry_size",
        "length",
        "max_entries",
        "max_size",
        "path",
    )

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int, *, max_size: int, entry_size: int, length: int) -> None:
        self._filesystem = filesystem
        self._tail = bytearray()
        self._window = b""  # a part of the file that was read
        self._window_first = 0
        self.path = path
        self.base_offset = base_offset
        self.max_size = max_size
        self.entry_size = entry_size
        self.length = length
        self.max_entries = length // entry_size
        # A file that was there is taken to be full of entries: it was trimmed, or it will be rebuilt.
        self.entries = self._written = self.max_entries

    def append_entry(self, entry: bytes) -> None:
        self._tail += entry
        self.entries += 1
        if len(self._tail) >= _TAIL_BYTES:
            self.write_out()

    def write_out(self) -> None:
        """Brings the entries that are still in memory into the file."""
        if self._tail:
            file = self._filesystem.open(self.path, create=True)
            file.pwrite(self._tail, self._written * self.entry_size)
            file.close()
            self._written = self.entries
            self._tail.clear()

    def resize(self, size: int) -> None:
        """Makes the file room for `size` bytes of entries, rounded down to whole ones; what is beyond is lost."""
        size -= size % self.entry_size
        self.write_out()
        if size != self.length:
            file = self._filesystem.open(self.path, create=True)
            file.truncate(size)
            file.close()
            self.length = size
            self.max_entries = size // self.entry_size
            if self.entries > self.max_entries:
                self._window = b""
                self.entries = self._written = self.max_entries

    def make_room(self) -> None:
        """Preallocates, for appends."""
        self.resize(self.max_size)

    def trim(self) -> None:
        """Cuts the file behind its last entry."""
        self.resize(self.entries * self.entry_size)

    def truncate_to_entries(self, entries: int) -> None:
        if entries >= self._written:
            del self._tail[(entries - self._written) * self.entry_size :]
            self.entries = entries
            return
        self._tail.clear()
        self._window = b""
        self.entries = self._written = entries
        # What was written behind the cut must read as unused again, as it does in an index that never had it.
        file = self._filesystem.open(self.path, create=True)
        file.truncate(entries * self.entry_size)
        file.truncate(self.length)
        file.close()

    def reset(self) -> None:
        """Empty, with room for appends, whatever stood in the file."""
        self._tail.clear()
        self._window = b""
        self.entries = self._written = 0
        self.length = self.max_size - self.max_size % self.entry_size
        self.max_entries = self.length // self.entry_size
        file = self._filesystem.open(self.path, create=True)
        file.truncate(0)
        file.truncate(self.length)
        file.close()

    def sync(self) -> None:
        """Makes the written entries durable. Blocks; `write_out` comes first, on the thread that owns the log."""
        file = self._filesystem.open(self.path)
        file.sync()
        file.close()

    def raw_entries(self, first: int, count: int) -> bytes:
        """The bytes of entries `[first, first + count)`."""
        size = self.entry_size
        if first >= self._written:
            at = (first - self._written) * size
            return bytes(self._tail[at : at + count * size])
        at = (first - self._window_first) * size
        if 0 <= at <= len(self._window) - count * size:
            return self._window[at : at + count * size]
        file = self._filesystem.open(self.path, read_only=True)
        data = file.pread(min(count, self._written - first) * size, first * size)
        file.close()
        if first + count > self._written:
            data += self._tail[: (first + count - self._written) * size]
        return data

    def last_slot_at_most(self, field: struct.Struct, target: int) -> int:
        """The largest slot whose `field` is at most `target`, -1 if there is none.

        Looks in memory first, then at the newest 8 KiB, then by halves; what was read last is kept for the next of a reader's lookups.
        """
        size = self.entry_size
        tail = self._tail
        if tail and field.unpack_from(tail)[0] <= target:
            return self._written + _last_at_most(tail, field, size, target)
        if not self._written:
            return -1
        window = self._window
        if window and field.unpack_from(window)[0] <= target:
            slot = self._window_first + _last_at_most(window, field, size, target)
            end = self._window_first + len(window) // size
            if slot + 1 < end or end == self._written:
                return slot
        return self._search(field, target)

    def _search(self, field: struct.Struct, target: int) -> int:
        size = self.entry_size
        count = max(1, _WARM_BYTES // size)
        low, high = 0, self._written  # the answer is in [low - 1, high)
        first = max(0, high - count)
        file = self._filesystem.open(self.path, read_only=True)
        while True:
            data = file.pread(min(count, high - first) * size, first * size)
            if field.unpack_from(data)[0] > target:
                high = first
                slot = low - 1
            else:
                slot = first + _last_at_most(data, field, size, target)
                low = slot + 1
                if low < first + len(data) // size:
                    high = low
            if low == high:
                break
            first = low if high - low <= count else (low + high) // 2
        file.close()
        self._window, self._window_first = data, first
        return slot


def _last_at_most(data: bytes | bytearray, field: struct.Struct, size: int, target: int) -> int:
    unpack = field.unpack_from
    return bisect_right(range(len(data) // size), target, key=lambda slot: unpack(data, slot * size)[0]) - 1
