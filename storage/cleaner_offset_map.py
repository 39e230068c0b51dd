"""The cleaner's map from keys to their latest offsets, as compact as Apache Kafka's SkimpyOffsetMap: 24 bytes for each key.

`cleaner_run` fills one from the uncleaned part of a log (`add`), then asks it which records are superseded. Keys are known by 128 bits of
hash; two keys that share them would be taken for one, which is as unlikely as with Kafka's MD5. The bits are two of Python's own 64-bit
hashes (SipHash keyed with this process's secret): 0.14 µs for both, where MD5 costs 0.46 and BLAKE2 0.41.

The table is one `array` of (hash, hash, offset) with open addressing by double hashing, over a prime number of slots. It begins small and
grows to what `log.cleaner.dedupe.buffer.size` allows. A dict of the same keys takes eight times the memory.

Besides, the map knows of every offset in the part it was filled from whether the record there is the latest of its key (`live`): one byte
for each offset, 0 superseded or without a key, LIVE, or TOMBSTONE. So that part is cleaned without hashing anything again, and most of its
batches without even looking into them.
"""

import hashlib
import struct
import sys
from array import array
from itertools import count
from math import isqrt
from typing import NamedTuple

from protocol.record_errors import InvalidRecord
from protocol.record_reader import read_varint
from protocol.records import BatchHeader

BYTES_PER_ENTRY = 24
LIVE = 1
TOMBSTONE = 2
MAX_LIVE_OFFSETS = 32 * 1024 * 1024
"""So many offsets are followed in `live`, a byte each; those beyond are looked up by their keys."""

_FIRST_SLOTS = 4096
_GROW_AT = 0.6
_SECOND = b"\x01"
_TWO_HASHES = struct.Struct("<qq")
_SIP_HASHED = sys.hash_info.algorithm.startswith("siphash") and sys.hash_info.width == 64


def two_hashes(key: bytes) -> tuple[int, int]:
    """128 bits that stand for the key; the first is never 0."""
    if _SIP_HASHED:
        return hash(key) or 1, hash(_SECOND + key)
    first, second = _TWO_HASHES.unpack(hashlib.blake2b(key, digest_size=16).digest())
    return first or 1, second


class Superseded(NamedTuple):
    """What a look at the records of one batch found."""

    offsets: set[int]
    """Those that go: there is a later record of the key, or a tombstone's time is over, or there is no key."""
    without_key: int
    has_tombstone: bool
    """Among those that stay."""


class OffsetMap:
    """Filled in the order of offsets."""

    __slots__ = ("_grow_at", "_slots", "_table", "first_offset", "latest_offset", "live", "max_slots", "size", "without_key")

    def __init__(self, memory_bytes: int, first_offset: int = 0) -> None:
        """`first_offset` is where the part begins that it is filled from."""
        self.max_slots = memory_bytes // BYTES_PER_ENTRY
        self.first_offset = first_offset
        self.latest_offset = -1
        """How far the log was read into the map."""
        self.live = bytearray()
        self.size = 0
        self.without_key = 0
        """Records that were passed over for having no key."""
        self._resize(min(_FIRST_SLOTS, self.max_slots))

    @property
    def utilization(self) -> float:
        """The part of the slots that is taken."""
        return self.size / self.max_slots

    def get(self, key: bytes) -> int:
        """The latest offset of the key, -1 if it is not in here."""
        table = self._table
        slots = self._slots
        if _SIP_HASHED:
            first = hash(key) or 1
        else:
            first = two_hashes(key)[0]
        at = first % slots * 3
        found = table[at]
        if not found:
            return -1
        second = two_hashes(key)[1]
        step = (second % (slots - 1) + 1) * 3
        end = slots * 3
        while found:
            if found == first and table[at + 1] == second:
                return table[at + 2]
            at += step
            if at >= end:
                at -= end
            found = table[at]
        return -1

    def put(self, key: bytes, offset: int, kind: int = LIVE) -> None:
        """The key's latest offset is `offset`; `kind` is what stands there, LIVE or TOMBSTONE."""
        self._reach(offset)
        self._put(*two_hashes(key), offset, kind)

    def add(self, data: bytes, header: BatchHeader, start_offset: int, max_size: int) -> bool:
        """Puts the keyed records of one batch (`data` is its decompressed body) from `start_offset` on; False once `max_size` keys are in.

        Raises InvalidRecord if the records break the format.
        """
        count = header.record_count
        base_offset = header.base_offset
        self._reach(header.last_offset)
        put = self._put
        sip_hashed = _SIP_HASHED
        at = 0
        try:
            for _ in range(count):
                size = data[at]
                at += 1
                if size < 0x80:
                    end = at + (size >> 1)
                elif (high := data[at]) < 0x80:  # two bytes hold what most records are long
                    at += 1
                    end = at + ((size + (high << 7) - 0x80) >> 1)
                else:
                    size, at = read_varint(data, at - 1)
                    end = at + size
                at += 1  # attributes
                while data[at] >= 0x80:  # the timestamp
                    at += 1
                at += 1
                delta = data[at]
                at += 1
                if delta < 0x80:
                    delta >>= 1
                else:
                    delta, at = read_varint(data, at - 1)
                length = data[at]
                at += 1
                if length < 0x80:
                    length = length >> 1 if not length & 1 else -1
                else:
                    length, at = read_varint(data, at - 1)
                if length >= 0:
                    offset = base_offset + delta
                    if offset >= start_offset:
                        if self.size >= max_size:
                            return False
                        stop = at + length
                        key = data[at:stop]
                        kind = TOMBSTONE if data[stop] == 1 else LIVE
                        if sip_hashed:
                            put(hash(key) or 1, hash(_SECOND + key), offset, kind)
                        else:
                            put(*two_hashes(key), offset, kind)
                elif base_offset + delta >= start_offset:
                    self.without_key += 1
                at = end
        except IndexError:
            raise InvalidRecord("a record reaches beyond its batch") from None
        if at != len(data):
            raise InvalidRecord(f"{count} records take {at} bytes of a batch of {len(data)}")
        return True

    def _reach(self, offset: int) -> None:
        missing = min(offset - self.first_offset + 1, MAX_LIVE_OFFSETS) - len(self.live)
        if missing > 0:
            self.live.extend(bytes(missing))

    def _put(self, first: int, second: int, offset: int, kind: int) -> None:
        table = self._table
        slots = self._slots
        slot = offset - self.first_offset
        if slot < MAX_LIVE_OFFSETS:
            self.live[slot] = kind
        self.latest_offset = offset
        at = first % slots * 3
        found = table[at]
        if found:
            if found == first and table[at + 1] == second:
                slot = table[at + 2] - self.first_offset
                table[at + 2] = offset
                if slot < MAX_LIVE_OFFSETS:
                    self.live[slot] = 0
                return
            step = (second % (slots - 1) + 1) * 3
            end = slots * 3
            while found:
                if found == first and table[at + 1] == second:
                    slot = table[at + 2] - self.first_offset
                    table[at + 2] = offset
                    if slot < MAX_LIVE_OFFSETS:
                        self.live[slot] = 0
                    return
                at += step
                if at >= end:
                    at -= end
                found = table[at]
        table[at] = first
        table[at + 1] = second
        table[at + 2] = offset
        self.size += 1
        if self.size >= self._grow_at:
            self._grow()

    def superseded(self, data: bytes, header: BatchHeader, *, drop_tombstones: bool) -> Superseded:
        """Looks up the records of one batch (`data` is its decompressed body). Raises InvalidRecord if they break the format."""
        base_offset = header.base_offset
        latest_offset = self.latest_offset
        table = self._table
        slots = self._slots
        sip_hashed = _SIP_HASHED
        dropped: set[int] = set()
        without_key = 0
        has_tombstone = False
        at = 0
        try:
            for _ in range(header.record_count):
                size = data[at]
                at += 1
                if size < 0x80:
                    end = at + (size >> 1)
                elif (high := data[at]) < 0x80:
                    at += 1
                    end = at + ((size + (high << 7) - 0x80) >> 1)
                else:
                    size, at = read_varint(data, at - 1)
                    end = at + size
                at += 1  # attributes
                while data[at] >= 0x80:  # the timestamp
                    at += 1
                at += 1
                delta = data[at]
                at += 1
                if delta < 0x80:
                    delta >>= 1
                else:
                    delta, at = read_varint(data, at - 1)
                length = data[at]
                at += 1
                if length < 0x80:
                    length = length >> 1 if not length & 1 else -1
                else:
                    length, at = read_varint(data, at - 1)
                offset = base_offset + delta
                if length >= 0:
                    stop = at + length
                    is_tombstone = data[stop] == 1
                    if offset <= latest_offset:
                        key = data[at:stop]
                        first = hash(key) or 1 if sip_hashed else two_hashes(key)[0]
                        if (drop_tombstones and is_tombstone) or (table[first % slots * 3] and self.get(key) > offset):
                            dropped.add(offset)
                        elif is_tombstone:
                            has_tombstone = True
                    elif is_tombstone:
                        has_tombstone = True
                elif offset <= latest_offset:
                    without_key += 1
                    dropped.add(offset)
                elif data[at] == 1:
                    has_tombstone = True
                at = end
        except IndexError:
            raise InvalidRecord("a record reaches beyond its batch") from None
        if at != len(data):
            raise InvalidRecord(f"{header.record_count} records take {at} bytes of a batch of {len(data)}")
        return Superseded(dropped, without_key, has_tombstone)

    def live_in(self, first_offset: int, last_offset: int) -> bytearray | None:
        """What is known of the offsets from the first to the last; None if they are not all in the part that is followed."""
        start = first_offset - self.first_offset
        end = last_offset - self.first_offset + 1
        if start < 0 or end > MAX_LIVE_OFFSETS or last_offset > self.latest_offset:
            return None
        found = self.live[start:end]
        if len(found) < end - start:
            found.extend(bytes(end - start - len(found)))
        return found

    def _grow(self) -> None:
        old = self._table
        self._resize(min(self._slots * 4, self.max_slots))
        table = self._table
        slots = self._slots
        end = slots * 3
        for position in range(0, len(old), 3):
            first = old[position]
            if first:
                second = old[position + 1]
                at = first % slots * 3
                if table[at]:
                    step = (second % (slots - 1) + 1) * 3
                    while table[at]:
                        at += step
                        if at >= end:
                            at -= end
                table[at : at + 3] = old[position : position + 3]

    def _resize(self, slots: int) -> None:
        self._slots = _prime_above(slots)
        self._table = array("q", [0]) * (self._slots * 3)
        is_last = slots == self.max_slots
        self._grow_at = sys.maxsize if is_last else int(self._slots * _GROW_AT)


def _prime_above(number: int) -> int:
    """So that every step of the double hashing comes past all slots, of which one is always empty: there the search ends."""
    return next(n for n in count(max(number, 2) + 1) if all(n % divisor for divisor in range(2, isqrt(n) + 1)))
