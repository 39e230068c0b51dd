"""Keeps the segments of a log in order of their base offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import final

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.refusing_segments import ClosedSegment, SegmentBeingTruncated
from ottla.storage.segment.segment import Segment


@final
class LogSegments:
    """The segments of a log. Owned by a `PartitionLog`."""

    __slots__ = ("_bases", "_segments", "active", "hints", "settings")

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.active: Segment
        """The segment that takes appends: the last one, or one that refuses them because the log is closed. Set by the first `add`."""
        self.hints: dict[int, tuple[Segment, int]] = {}
        """Positions of batches that `BatchReader` has found, by offset. A removal of a segment forgets them."""
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
    def is_being_truncated(self) -> bool:
        """Whether a thread has the last segment, to truncate it."""
        return isinstance(self.active, SegmentBeingTruncated)

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
        if segment is self._segments[-1]:
            self.active = segment

    def remove(self, segment: Segment) -> None:
        """Remove a segment, if it is present."""
        self.hints.clear()
        at = bisect_left(self._bases, segment.base_offset)
        if at < len(self._bases) and self._segments[at] is segment:
            del self._bases[at], self._segments[at]
            if segment is self.active and self._segments:
                self.active = self._segments[-1]

    def use_settings(self, settings: LogSettings) -> None:
        """Use other settings from the next append on. Existing segments keep the size of their indexes."""
        self.settings = settings
        for segment in self._segments:
            segment.update_settings(settings)

    def refuse_appends(self, topic_partition: TopicPartition, log_end_offset: int) -> None:
        """Let every further append raise LogClosed. The log ends at `log_end_offset`."""
        self.hints.clear()
        self.active = ClosedSegment(topic_partition, log_end_offset)

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
