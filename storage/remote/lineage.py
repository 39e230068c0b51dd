"""Compares the leader epochs of remote segments with those of the log (KIP-405), in the rules of Apache Kafka's RemoteLogManager.

Epochs are (epoch, start offset), both ascending, as `LeaderEpochCache.entries`. Nothing here waits or keeps state.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.storage.remote.entries import Accepts, SegmentEntry, SegmentState, any_copy

Epochs = Sequence[tuple[int, int]]
_NAMED: Final = 10
NO_OFFSET = -1
NO_EPOCH = -1


class OffsetAndEpoch(NamedTuple):
    """An offset and the leader epoch that wrote it; both are -1 if there is none."""

    offset: int
    epoch: int


class LogBounds(NamedTuple):
    """The log on this broker: where it starts and ends, its epochs `with_records`, and how many bytes are not in the store yet."""

    log_start_offset: int
    log_end_offset: int
    epochs: Epochs
    only_local_bytes: int = 0


class Find(Protocol):
    """Finds a finished copy that has an offset in a leader epoch, and that is accepted: `RemoteLogMetadata.find` for one partition."""

    def __call__(self, epoch: int, offset: int, accepts: Accepts = any_copy, /) -> SegmentEntry | None: ...


class KnownCopies(Protocol):
    """The entries of one partition, as RemoteLogMetadata has them."""

    def find(self, epoch: int, offset: int) -> SegmentEntry | None:
        """See RemoteLogMetadata."""

    def highest_offset(self, epoch: int) -> int | None:
        """See RemoteLogMetadata."""

    def entries(self, epoch: int) -> Sequence[SegmentEntry]:
        """See RemoteLogMetadata."""


NOTHING_COPIED = OffsetAndEpoch(NO_OFFSET, NO_EPOCH)


def with_records(epochs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Leaves out the epochs that have no records, because the next one begins at the same offset."""
    found: list[tuple[int, int]] = []
    for epoch, start_offset in epochs:
        if found and found[-1][1] == start_offset:
            found.pop()
        found.append((epoch, start_offset))
    return found


def epochs_between(epochs: Epochs, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """Returns the epochs that have offsets in [start_offset, end_offset). The one that contains the start begins there."""
    found: list[tuple[int, int]] = []
    for epoch, begin in epochs:
        if begin >= end_offset:
            break
        if begin <= start_offset:
            found.clear()
        found.append((epoch, max(begin, start_offset)))
    return found


def is_in_lineage(entry: SegmentEntry, log_end_offset: int, epochs: Epochs) -> bool:
    """Tells if the segment has what the log has, or had before retention: `isRemoteSegmentWithinLeaderEpochs`.

    `epochs` are those of the log `with_records`. A segment may begin below the log's first epoch; epochs before it are not compared.
    """
    of_segment = with_records(sorted(entry.leader_epochs.items()))
    if not epochs or not of_segment or entry.end_offset >= log_end_offset:
        return False
    first_known = epochs[0][0]
    of_segment = of_segment[bisect_left(of_segment, (first_known, NO_OFFSET)) :]
    if not of_segment:
        return False
    first, first_offset = of_segment[0]
    at = bisect_left(epochs, (first, NO_OFFSET))
    if at == len(epochs) or epochs[at][0] != first or (at and first_offset < epochs[at][1]):
        return False
    later = at + len(of_segment)
    if list(epochs[at + 1 : later]) != of_segment[1:]:
        return False
    return later >= len(epochs) or entry.end_offset < epochs[later][1]


def highest_copied(bounds: LogBounds, known: KnownCopies) -> OffsetAndEpoch:
    """Finds the last offset that is in the remote store and in this lineage; NOTHING_COPIED without any.

    Unlike in Apache Kafka, a copy that reaches beyond the end of its epoch in this log does not count in part: it has records that this
    log does not have, so that it is not read, and the records before them have to be copied anew.
    """
    end_offset = bounds.log_end_offset
    for epoch, start_offset in reversed(bounds.epochs):
        highest = known.highest_offset(epoch)
        if highest is not None:
            at = min(highest, end_offset - 1)
            entry = known.find(epoch, at)
            if entry is not None and is_in_lineage(entry, bounds.log_end_offset, bounds.epochs):
                return OffsetAndEpoch(entry.end_offset, epoch)
            # It was copied, and removed with the records before the log start. The first epoch may have begun before that.
            if entry is None and at < bounds.log_start_offset and (start_offset <= at or start_offset == bounds.epochs[0][1]):
                return OffsetAndEpoch(at, epoch)
            for entry in reversed(known.entries(epoch)):
                if _is_readable(entry, bounds.log_end_offset, bounds.epochs):
                    return OffsetAndEpoch(entry.end_offset, epoch)
        end_offset = start_offset
    return NOTHING_COPIED


def first_missing(first: int, last: int, log_end_offset: int, epochs: Epochs, find: Find) -> int | None:
    """Finds the first offset from `first` to `last` that no finished copy in the lineage has; None if they have all."""

    def is_readable(entry: SegmentEntry) -> bool:
        return _is_readable(entry, log_end_offset, epochs)

    at = first
    while at <= last:
        epoch = epoch_of(epochs, at)
        entry = None if epoch is None else find(epoch, at, is_readable)
        if entry is None:
            return at
        at = max(at, entry.end_offset) + 1
    return None


class Gaps:
    """Finds the ranges of [first, end) that no copy has, from copies by ascending start offset."""

    __slots__ = ("_at", "_end", "_found")

    def __init__(self, first: int, end: int) -> None:
        self._at = first
        self._end = end
        self._found: list[tuple[int, int]] = []

    def on_copy(self, start_offset: int, end_offset: int) -> None:
        """Takes in the next copy."""
        before = min(start_offset, self._end)
        if before > self._at:
            self._found.append((self._at, before - 1))
        self._at = max(self._at, end_offset + 1)

    def all(self) -> list[tuple[int, int]]:
        """Returns (first, last) of each range, ascending, after the last copy."""
        self.on_copy(self._end, self._end - 1)
        return self._found


def next_copy(offset: int, bounds: LogBounds, entries_of: Callable[[int], Sequence[SegmentEntry]]) -> SegmentEntry | None:
    """Finds the first readable segment of the lineage that begins behind the offset."""
    for epoch, _ in bounds.epochs[max(bisect_right(bounds.epochs, offset, key=lambda each: each[1]) - 1, 0) :]:
        entries = entries_of(epoch)
        for entry in entries[bisect_right(entries, offset, key=lambda each: each.start_offset) :]:
            if _is_readable(entry, bounds.log_end_offset, bounds.epochs):
                return entry
    return None


def some_ranges(ranges: Sequence[tuple[int, int]]) -> str:
    """Names ranges of offsets for a person, not more than ten."""
    named = ", ".join(f"{first} to {last}" for first, last in ranges[:_NAMED])
    return named if len(ranges) <= _NAMED else f"{named} and {len(ranges) - _NAMED} more ranges"


def first_remote_offset(bounds: LogBounds, entries_of: Callable[[int], Sequence[SegmentEntry]]) -> int | None:
    """Finds where the oldest readable remote segment of the lineage begins; None without any."""
    for epoch, _ in bounds.epochs:
        for entry in entries_of(epoch):
            if _is_readable(entry, bounds.log_end_offset, bounds.epochs):
                return entry.start_offset
    return None


def _is_readable(entry: SegmentEntry, log_end_offset: int, epochs: Epochs) -> bool:
    return entry.state == SegmentState.COPY_SEGMENT_FINISHED and is_in_lineage(entry, log_end_offset, epochs)


def epoch_of(epochs: Epochs, offset: int) -> int | None:
    """Returns the epoch that has the offset; None below the first one."""
    at = bisect_right(epochs, offset, key=lambda each: each[1])
    return epochs[at - 1][0] if at else None
