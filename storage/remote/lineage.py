"""Compares the leader epochs of remote segments with those of the log (KIP-405), in the rules of Apache Kafka's RemoteLogManager.

Epochs are (epoch, start offset), both ascending, as `LeaderEpochCache.entries`. Nothing here waits or keeps state.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.storage.remote.entries import SegmentEntry, SegmentState

Epochs = Sequence[tuple[int, int]]
NO_OFFSET = -1
NO_EPOCH = -1


class OffsetAndEpoch(NamedTuple):
    """An offset and the leader epoch that wrote it; both are -1 if there is none."""

    offset: int
    epoch: int


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


def highest_copied(epochs: Epochs, log_end_offset: int, highest_offset: Callable[[int], int | None]) -> OffsetAndEpoch:
    """Finds the last offset that is in the remote store and in this lineage.

    `highest_offset` gives the largest end offset of finished copies in an epoch (`RemoteLogMetadata.highest_offset`). Copies of a
    former leader count up to the end of its epoch in this log.
    """
    end_offset = log_end_offset
    for epoch, start_offset in reversed(epochs):
        highest = highest_offset(epoch)
        if highest is not None:
            return OffsetAndEpoch(min(highest, end_offset - 1), epoch)
        end_offset = start_offset
    return NOTHING_COPIED


def first_remote_offset(epochs: Epochs, log_end_offset: int, entries_of: Callable[[int], Sequence[SegmentEntry]]) -> int | None:
    """Finds where the oldest readable remote segment of the lineage begins; None without any."""
    for epoch, _ in epochs:
        for entry in entries_of(epoch):
            if entry.state == SegmentState.COPY_SEGMENT_FINISHED and is_in_lineage(entry, log_end_offset, epochs):
                return entry.start_offset
    return None
