"""Recognises batches of `__consumer_offsets` that commit the same partitions as an earlier one: most batches of a log that was not cleaned
yet.

A consumer commits the offsets of its assignment repeatedly, and its batches differ only in their values. When a batch occurs for the second
time, the positions of its values and the bytes between them are stored. Later batches are only compared with these bytes: 0.06 µs a record,
where reading one takes 0.5. The latest one is kept until its values are needed. Called by `loading` only.

Invariant: `flush` stores a kept value unless there is a later one already. It must be called before any offset is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from struct import Struct

from ottla.coordination.groups.committed import RECORD_OFFSET_SIZE, Stored
from ottla.protocol.records.errors import InvalidRecord
from ottla.protocol.records.walk import RecordWalk

FEWEST_RECORDS = 8
"""Fewest records of a batch that is compared; a smaller batch is read as fast."""

MOST_RECORDS = 20_000
"""Largest number of records that are remembered at a time, 300 bytes each."""

MOST_HEADS = 10_000
RECORDS_PER_PAUSE = 64

_INDEX = Struct(">i")


class _Repeated:
    """A batch that occurred more than once. `body` is the latest one whose values are not stored yet, and `place` its position."""

    __slots__ = ("between", "body", "fixed", "place", "targets", "values")

    def __init__(self, body: bytes, values: list[slice], targets: list[tuple[dict[int, Stored], int]]) -> None:
        starts = [0, *(value.stop for value in values)]
        ends = [*(value.start for value in values), len(body)]
        self.between = itemgetter(*map(slice, starts, ends))
        self.fixed = self.between(body)
        self.values = itemgetter(*values)
        self.targets = targets
        self.body: bytes | None = None
        self.place = b""


class RepeatedCommits:
    """See the module."""

    __slots__ = ("_head_sizes", "_known", "_room", "_seen", "_waiting")

    def __init__(self) -> None:
        self._head_sizes: dict[int, int] = {}
        """The last known position of the first value, by length of the body."""
        self._seen: set[tuple[int, bytes]] = set()
        self._known: dict[tuple[int, bytes], _Repeated | None] = {}
        """By length and the bytes before the first value; None for a batch that cannot be compared."""
        self._room = MOST_RECORDS
        self._waiting: list[_Repeated] = []

    def take(self, body: bytes, place: bytes, count: int, offsets: Mapping[bytes, dict[int, Stored]]) -> bool:
        """Whether this batch repeats a known one, and need not be read. `offsets` has entries by a key without its last four bytes."""
        size = len(body)
        head_size = self._head_sizes.get(size, 0)
        head = size, body[:head_size]
        known = self._known.get(head)
        if known is None:
            if head in self._known:
                return False
            known = self._remember(body, count, head, offsets)
            if known is None:
                return False
        elif known.between(body) != known.fixed:
            return False
        if known.body is None:
            self._waiting.append(known)
        known.body = body
        known.place = place
        return True

    def _remember(self, body: bytes, count: int, head: tuple[int, bytes], offsets: Mapping[bytes, dict[int, Stored]]) -> _Repeated | None:
        if head not in self._seen:
            first = _parts(body, 1, count)
            if first:
                self._head_sizes[len(body)] = first[0][2].start
                if len(self._seen) >= MOST_HEADS:
                    self._seen.clear()
                self._seen.add((len(body), body[: first[0][2].start]))
            return None
        if count > self._room:
            return None
        found = _parts(body, count, count)
        targets = [(offsets[key], index) for key, index, _ in found if key in offsets]
        if len(targets) != count:
            if len(found) != count:
                self._known[head] = None
            return None
        self._room -= count
        known = self._known[head] = _Repeated(body, [value for _, _, value in found], targets)
        return known

    def flush(self) -> Iterator[None]:
        """Store the kept values in their entries. Pauses every few records."""
        count = 0
        for repeated in self._waiting:
            assert repeated.body is not None
            place = repeated.place
            for (offsets, index), value in zip(repeated.targets, repeated.values(repeated.body), strict=True):
                known = offsets.get(index)
                if known is None or known[:RECORD_OFFSET_SIZE] < place:
                    offsets[index] = place + value
                count += 1
                if count % RECORDS_PER_PAUSE == 0:
                    yield
            repeated.body = None
        self._waiting.clear()


def _parts(body: bytes, count: int, of: int) -> list[tuple[bytes, int, slice]]:
    """(key without the partition, partition, position of the value) of the first `count` records in a batch of `of`.

    They are fewer if one of them is malformed, or has no value, or headers.
    """
    parts: list[tuple[bytes, int, slice]] = []
    walk = RecordWalk(body, of)
    try:
        while len(parts) < count and walk.advance():
            key = walk.key()
            if key is None or len(key) < _INDEX.size or walk.value_size < 0 or walk.headers:
                break
            value = slice(walk.value_at, walk.value_at + walk.value_size)
            parts.append((key[: -_INDEX.size], _INDEX.unpack_from(key, len(key) - _INDEX.size)[0], value))
    except InvalidRecord:
        pass
    return parts
