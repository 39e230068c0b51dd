"""Lists the aborted transactions whose markers are in a segment.

34-byte entries in the order of their markers: version (int16, 0), producer id, first offset, last offset (that of the marker), last stable
offset after the marker (int64 each). The file is created with the first entry. Fetches of committed records read it. It is mostly small, so
it is read as a whole, and its bytes are kept until `release`. A producer that ends every batch with an abort may make it a quarter as large
as the log. As objects, a million entries would take 300 MB, and a second of the event loop.

While a transaction is open, all transactions that begin behind its first offset and are aborted have entries, up to its own, that a reader
of records before them passes over. `Bounds` tell which entries have nothing for a range. They are computed when a search first gets there,
and kept until `release`.
"""

import struct
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, final

from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.cold_lookups import LongWalk, NotCached
from ottla.storage.segment.transaction_bounds import BLOCK_ENTRIES, ENTRY_SIZE, GROUP_ENTRIES, Bounds, bounds_of

CURRENT_VERSION = 0
ALL: Final = sys.maxsize
"""More transactions than any index has."""
INLINE_STEPS: Final = 16
"""Indexes that are opened and bounds that are computed in one turn of the event loop, 150 µs each."""

_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET: Final = struct.Struct(">q")
_LAST_OFFSET_AT: Final = 18
_ENTRIES_AT_ONCE: Final = 1 << 15
"""Entries that are read from a file at once, a megabyte."""

Read = Callable[[int, int], bytes | bytearray]
"""Returns the bytes of entries of an index: from this one on, so many. All of them are there."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction. Readers of committed records skip the records of `producer_id` in `[first_offset, last_offset]`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Walk:
    """Limits the steps of one search on the event loop, which may go through several indexes."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = INLINE_STEPS

    def take_step(self, filesystem: FileSystem, path: str, position: int) -> None:
        """Counts a step, whose result is kept. Raises LongWalk if there were too many; the repeated search needs fewer."""
        if not self._left:
            raise LongWalk(filesystem, path, position, ENTRY_SIZE)
        self._left -= 1


@final
class TransactionSearch:
    """Searches one index, and keeps the bounds of the groups that it has passed over, until `release`."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: dict[int, Bounds] = {}
        """By the number of the group of entries."""

    def release(self) -> None:
        """Drops the bounds: the index is another one."""
        self._bounds.clear()

    def collect(
        self, read: Read, count: int, fetch_offset: int, upper_bound_offset: int, at_most: int, take_step: Callable[[int], None]
    ) -> tuple[list[AbortedTransaction], bool]:
        """Does what `TransactionIndex.collect` does, in an index of `count` entries.

        Calls `take_step` with the position of a group in the index before it computes the bounds of it.
        """
        found: list[AbortedTransaction] = []
        # Those before have ended below the range. Each of their last stable offsets is at most the offset behind its marker.
        for begin, end in self._spans(read, count, first_slot(read, count, fetch_offset), upper_bound_offset, take_step):
            for _, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(read(begin, end - begin)):
                if first_offset < upper_bound_offset:
                    found.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))
                if last_stable_offset >= upper_bound_offset:
                    return found, True
                if len(found) >= at_most:
                    return found, False
        return found, False

    def _spans(
        self, read: Read, count: int, slot: int, upper_bound_offset: int, take_step: Callable[[int], None]
    ) -> Iterator[tuple[int, int]]:
        """First and end slots of the blocks from `slot` on with a transaction that begins below the bound, or that ends the search."""
        if slot % BLOCK_ENTRIES:  # a reader at the end of the log needs no bounds, which each append there makes obsolete
            end = min(slot - slot % BLOCK_ENTRIES + BLOCK_ENTRIES, count)
            yield slot, end
            slot = end
        while slot < count:
            number = slot // GROUP_ENTRIES
            begin = number * GROUP_ENTRIES
            end = min(begin + GROUP_ENTRIES, count)
            bounds = self._bounds.get(number)
            if bounds is None or bounds.entries < end - begin:
                take_step(begin * ENTRY_SIZE)
                bounds = self._bounds[number] = bounds_of(read(begin, end - begin))
            if bounds.concern(upper_bound_offset):
                for at in range((slot - begin) // BLOCK_ENTRIES, len(bounds.first_offsets)):
                    if bounds.block_concerns(at, upper_bound_offset):
                        block = begin + at * BLOCK_ENTRIES
                        yield block, min(block + BLOCK_ENTRIES, end)
            slot = end


class TransactionIndex:
    """A transaction index. Grows by `append`, or by `add` and `write_out`; last offsets increase."""

    __slots__ = ("_data", "_filesystem", "_search", "_size", "path", "start_offset")

    def __init__(self, filesystem: FileSystem, path: str, start_offset: int, size: int | None) -> None:
        """`size` is the size of the file; None if there is none."""
        self._filesystem = filesystem
        self._data: bytearray | None = None
        """All entries; None while they are not needed."""
        self._search: TransactionSearch | None = None
        """None before the first search: most indexes have none."""
        self.path = path
        self.start_offset = start_offset
        self._size = size

    def use_filesystem(self, filesystem: FileSystem) -> None:
        """Reach the file through another `FileSystem` from now on."""
        self._filesystem = filesystem

    def release(self) -> None:
        """Drop the entries; the next use reads them again."""
        self._data = None
        self._search = None

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

    def _prepare(self, walk: Walk) -> None:
        """Raises NotCached when reading the index would wait for the disk, and LongWalk after other steps."""
        if self._size and self._data is None:
            file = self._filesystem.open(self.path, read_only=True)
            is_cached = file.is_cached(self._size, 0)
            file.close()
            if not is_cached:
                raise NotCached(self._filesystem, self.path, 0, self._size)
            walk.take_step(self._filesystem, self.path, 0)

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

    def collect(
        self, fetch_offset: int, upper_bound_offset: int, at_most: int = ALL, walk: Walk | None = None
    ) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap `[fetch_offset, upper_bound_offset)`, and whether later segments can be skipped.

        Returns only the first `at_most` of them. With a `walk` it raises NotCached instead of waiting for the disk, and LongWalk.
        """
        if walk is not None:
            self._prepare(walk)
        search = self._search
        if search is None:
            search = self._search = TransactionSearch()
        count = len(self._all()) // ENTRY_SIZE
        return search.collect(self._entries, count, fetch_offset, upper_bound_offset, at_most, steps_of(walk, self._filesystem, self.path))

    def _entries(self, slot: int, count: int) -> bytearray:
        # A view would forbid appends as long as it exists, which may be as long as an error is kept.
        return self._all()[slot * ENTRY_SIZE : (slot + count) * ENTRY_SIZE]

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose marker is at or above `offset`."""
        count = len(self._all()) // ENTRY_SIZE
        left = first_slot(self._entries, count, offset)
        if left < count:
            self._truncate(left * ENTRY_SIZE)

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
        self.release()
        file = self._filesystem.open(self.path)
        file.truncate(size)
        file.close()
        self._size = size


def first_slot(read: Read, count: int, last_offset: int) -> int:
    """The slot of the first of `count` transactions whose marker is at or above the offset."""

    def last_offset_at(slot: int) -> int:
        found: int
        (found,) = _LAST_OFFSET.unpack_from(read(slot, 1), _LAST_OFFSET_AT)
        return found

    return bisect_left(range(count), last_offset, key=last_offset_at)


def steps_of(walk: Walk | None, filesystem: FileSystem, path: str) -> Callable[[int], None]:
    """Counts the steps of a search in one index."""
    return _no_step if walk is None else partial(walk.take_step, filesystem, path)


def _no_step(position: int) -> None:
    pass
