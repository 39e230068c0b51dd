"""Maps keys to their latest offsets for the cleaner, within the memory that Apache Kafka's SkimpyOffsetMap takes.

`run` fills a map from the uncleaned part of a log (`add`), completes it (`finish`), and then queries which records are
superseded. The number of keys is limited as in Kafka, to one for each 24 bytes of memory; see `hash_table` for large
maps. While a dict of the same keys fits into that memory, the map is a dict: a record then costs 0.1 µs, in the table
0.8.

After `finish` the map also has one byte for each offset of the part from which it was filled. The byte shows whether the offset has the
latest record of a key (`live_in`). So this part is cleaned without another look-up of keys, and most of its batches without parsing their
records.

Invariant: values are `2 * offset`, plus 1 for a tombstone.
"""

from hashlib import blake2b
from typing import NamedTuple

from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.walk import RecordWalk
from ottla.storage.cleaner.hash_table import BYTES_PER_ENTRY, HashTable

LIVE = 1
TOMBSTONE = 2
MAX_LIVE_OFFSETS = 32 * 1024 * 1024
"""Largest number of offsets tracked in `live`, one byte each; records beyond are looked up by key."""

_DICT_ENTRY_BYTES = 200  # key object, value object and dict slot, at their worst just after the dict grew
LONGEST_KEY = 32
"""Longest key that is kept as it is, bytes; of a longer one a digest is kept."""
_DIGEST_BYTES = 24


class Superseded(NamedTuple):
    """The result of looking up the records of one batch."""

    offsets: set[int]
    """Offsets to drop: there is a later record of the key, the retention of a tombstone is over, or there is no key."""
    without_key: int
    has_tombstone: bool
    """Whether there is a tombstone among the kept records."""


class OffsetMap:
    """The map of one cleaning, filled in the order of offsets."""

    __slots__ = ("_dict", "_dict_limit", "_live", "_table", "first_offset", "irregular", "latest_offset", "max_slots", "without_key")

    def __init__(self, memory_bytes: int, first_offset: int = 0) -> None:
        """`first_offset` is the start of the part from which it is filled."""
        self.max_slots = memory_bytes // BYTES_PER_ENTRY
        self.first_offset = first_offset
        self.latest_offset = -1
        """Last offset read into the map."""
        self.without_key = 0
        """Number of records skipped because they have no key."""
        self.irregular: set[int] = set()
        """Base offsets of batches whose records are not in the order of their offsets, or have gaps."""
        self._live = bytearray()
        self._dict: dict[bytes, int] | None = {}
        self._dict_limit = memory_bytes // _DICT_ENTRY_BYTES
        self._table = HashTable(self.max_slots)

    @property
    def size(self) -> int:
        """Number of keys."""
        return self._table.size if self._dict is None else len(self._dict)

    @property
    def utilization(self) -> float:
        """Used part of the slots."""
        return self.size / self.max_slots

    def get(self, key: bytes) -> int:
        """The latest offset of the key, -1 if there is none."""
        short = key if len(key) <= LONGEST_KEY else _digest(key)
        return (self._table.get(short) if self._dict is None else self._dict.get(short, -1)) >> 1

    def put(self, key: bytes, offset: int, *, is_tombstone: bool = False) -> None:
        """Sets the offset of the key's latest record."""
        self.latest_offset = offset
        short = key if len(key) <= LONGEST_KEY else _digest(key)
        known = self._dict
        if known is not None:
            if len(known) < self._dict_limit:
                known[short] = 2 * offset + is_tombstone
                return
            self._leave_dict(known)
        self._table.put(short, 2 * offset + is_tombstone)

    def add(self, data: bytes, header: BatchHeader, start_offset: int, max_size: int) -> bool:
        """Adds the keyed records of one batch (`data` is its decompressed body) from `start_offset` on; False once
        there are `max_size` keys.

        Raises InvalidRecord if the records break the format.
        """
        base_offset = header.base_offset
        room = min(max_size, self._dict_limit) - header.record_count
        known = self._dict if self.size <= room and base_offset >= start_offset else None  # where this batch can reach no limit
        walk = RecordWalk(data, header.record_count)
        for index in range(header.record_count):
            walk.advance()
            offset = base_offset + walk.delta
            if walk.delta != index:
                self.irregular.add(base_offset)
            key = walk.key()
            if key is None:
                self.without_key += offset >= start_offset
            elif known is not None and walk.key_size <= LONGEST_KEY:
                known[key] = 2 * offset + (walk.value_size < 0)
            elif offset >= start_offset:
                if self.size >= max_size:
                    return False
                self.put(key, offset, is_tombstone=walk.value_size < 0)
        return True

    def finish(self) -> None:
        """Completes the map; `add` is not called any more."""
        first = self.first_offset
        length = min(max(self.latest_offset - first + 1, 0), MAX_LIVE_OFFSETS)
        live = self._live = bytearray(length)
        for value in self._table.values() if self._dict is None else self._dict.values():
            slot = (value >> 1) - first
            if slot < length:
                live[slot] = TOMBSTONE if value & 1 else LIVE

    def live_in(self, first_offset: int, last_offset: int) -> bytearray | None:
        """For each offset from the first to the last: LIVE, TOMBSTONE, or 0 if its record is superseded or missing.

        None unless all of them are tracked.
        """
        start = first_offset - self.first_offset
        end = last_offset - self.first_offset + 1
        if start < 0 or end > len(self._live):
            return None
        return self._live[start:end]

    def superseded(self, data: bytes, header: BatchHeader, *, drop_tombstones: bool) -> Superseded:
        """Looks up the records of one batch (`data` is its decompressed body). Raises InvalidRecord if they break the
        format."""
        base_offset = header.base_offset
        latest_offset = self.latest_offset
        dropped: set[int] = set()
        without_key = 0
        has_tombstone = False
        walk = RecordWalk(data, header.record_count)
        while walk.advance():
            offset = base_offset + walk.delta
            is_tombstone = walk.value_size < 0
            key = walk.key()
            if offset > latest_offset:
                has_tombstone = has_tombstone or is_tombstone
            elif key is None:
                without_key += 1
                dropped.add(offset)
            elif self.get(key) > offset or (is_tombstone and drop_tombstones):
                dropped.add(offset)
            elif is_tombstone:
                has_tombstone = True
        return Superseded(dropped, without_key, has_tombstone)

    def _leave_dict(self, known: dict[bytes, int]) -> None:
        self._dict = None
        for key, value in known.items():
            self._table.put(key, value)


def _digest(key: bytes) -> bytes:
    """A digest of a long key, so that the size of an entry is limited. Collisions are practically impossible."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
