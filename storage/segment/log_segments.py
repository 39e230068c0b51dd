"""Keeps the segments of a log in order of their base offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ottla.storage.segment.segment import Segment


class LogSegments:
    """The segments of a log. Owned by a `PartitionLog`. The last segment is the active one."""

    __slots__ = ("_bases", "_segments")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self._segments)

    @property
    def bases(self) -> list[int]:
        """The base offsets, ascending."""
        return list(self._bases)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Add a segment. It replaces one with the same base offset."""
        at = bisect_left(self._bases, segment.base_offset)
        if at < len(self._bases) and self._bases[at] == segment.base_offset:
            self._segments[at] = segment
        else:
            self._bases.insert(at, segment.base_offset)
            self._segments.insert(at, segment)

    def remove(self, segment: Segment) -> None:
        """Remove a segment, if it is present."""
        at = bisect_left(self._bases, segment.base_offset)
        if at < len(self._bases) and self._segments[at] is segment:
            del self._bases[at], self._segments[at]

    def clear(self) -> None:
        self._bases.clear()
        self._segments.clear()

    def floor(self, offset: int) -> Segment | None:
        """The last segment that begins at or before `offset`."""
        at = bisect_right(self._bases, offset)
        return self._segments[at - 1] if at else None

    def lower(self, base_offset: int) -> Segment | None:
        """The last segment that begins before `base_offset`."""
        at = bisect_left(self._bases, base_offset)
        return self._segments[at - 1] if at else None

    def higher(self, base_offset: int) -> Segment | None:
        """The first segment that begins after `base_offset`."""
        at = bisect_right(self._bases, base_offset)
        return self._segments[at] if at < len(self._segments) else None

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments from the one that holds `start` to the last one that begins before `end`."""
        first = max(bisect_right(self._bases, start) - 1, 0)
        return self._segments[first : bisect_left(self._bases, end)]
