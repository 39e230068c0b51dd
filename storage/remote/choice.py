"""Chooses which segments of a partition are copied to the remote store, and which are removed (KIP-405).

The leader's tasks (`replication/remote`) call these functions on the event loop and carry out what they return. They read no clock and
keep no state.
"""

from collections.abc import Awaitable, Callable, Container, Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.pauses import pause
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, is_to_copy_again
from ottla.storage.remote.lineage import Gaps, LogBounds, is_in_lineage

FOREIGN_COPY_LIMIT_MS = 60 * 60 * 1000
"""Age from which a copy that another broker began, and did not finish, is given up."""

NEVER = -2
"""A time before those of all segments, also of those without timestamps (-1)."""

EntriesOf = Callable[[int], Sequence[SegmentEntry]]
"""The entries of a leader epoch by start offset."""

HasNewer = Callable[[int, int, int], Awaitable[bool]]
"""Tells if this broker may have records from a first to a last offset that are newer than a time in milliseconds."""


class Retention(NamedTuple):
    """The limits of the topic, in milliseconds and bytes; -1 for none."""

    retention_ms: int
    retention_bytes: int
    now_ms: int


class Expired(NamedTuple):
    """The segments to remove, oldest first, and the log start offset behind those that retention has chosen; None if it stays."""

    segments: list[SegmentEntry]
    log_start_offset: int | None


def segments_to_copy(bases: Sequence[int], first_offset: int, last_stable_offset: int) -> list[tuple[int, int]]:
    """Returns (base offset, base offset of the next) of the segments to copy, oldest first.

    `bases` are those of all local segments. Chosen are the segments from the one that contains `first_offset`. The last one and those
    that reach beyond the last stable offset stay, since their records are not final.
    """
    return [(base, following) for base, following in pairwise(bases) if first_offset < following <= last_stable_offset]


class Survey(NamedTuple):
    """The part of a log that is in the store: its bytes, and the (first, last) offsets of the ranges that are neither there nor here."""

    bytes: int
    gaps: list[tuple[int, int]]


async def survey(log: LogBounds, local_start_offset: int, entries_of: EntriesOf) -> Survey:
    """Counts the bytes of finished copies that belong to the log, each record once, and finds what they lack below the first local one."""
    seen: set[SegmentId] = set()
    shares = _Shares()
    gaps = Gaps(log.log_start_offset, local_start_offset)
    size = 0
    for epoch, _ in log.epochs:
        for entry in entries_of(epoch):
            await pause()
            if entry.id not in seen and _counts(entry, log):
                seen.add(entry.id)
                size += shares.of(entry)
                gaps.on_copy(entry.start_offset, entry.end_offset)
    return Survey(size, gaps.all())


async def choose_expired(
    log: LogBounds,
    retention: Retention,
    remote_bytes: int,
    entries_of: EntriesOf,
    being_copied: Container[SegmentId],
    has_newer: HasNewer,
) -> Expired:
    """Chooses what retention and the log start offset remove, from the oldest on, until a segment of the lineage stays.

    Nothing behind a segment that this broker is copying is removed. Copies that are not finished, or are being deleted, do not
    count: another copy has the same records, or none shall have them. Retention by time does not pass newer records between two copies.
    """
    chosen: dict[SegmentId, SegmentEntry] = {}
    new_start: int | None = None
    shares = _Shares()
    excess = remote_bytes + log.only_local_bytes - retention.retention_bytes if retention.retention_bytes >= 0 else 0
    oldest_ms = retention.now_ms - retention.retention_ms if retention.retention_ms >= 0 else NEVER
    between = _Between(log, oldest_ms, has_newer)
    for epoch, _ in log.epochs:
        for entry in entries_of(epoch):
            await pause()
            if entry.id in being_copied:
                return Expired(list(chosen.values()), new_start)
            if entry.id in chosen:
                continue
            counts = _counts(entry, log)
            size = shares.of(entry) if counts else 0
            if _is_below(entry, log):
                chosen[entry.id] = entry
            elif not counts:
                between.note(entry)
            elif (excess > 0 and size <= excess) or (entry.max_timestamp_ms <= oldest_ms and await between.is_old(entry)):
                chosen[entry.id] = entry
                new_start = between.pass_to(entry.end_offset + 1)
            else:
                return Expired(list(chosen.values()), new_start)
            excess -= size
    return Expired(list(chosen.values()), new_start)


class _Between:
    """Knows of the records between the copies that retention removes: offsets that no copy has.

    They are on a broker, or have a copy that is not finished in the metadata, and are to be copied. Or they are lost.
    """

    def __init__(self, log: LogBounds, oldest_ms: int, has_newer: HasNewer) -> None:
        self._log = log
        self._oldest_ms = oldest_ms
        self._has_newer = has_newer
        self._at = log.log_start_offset
        self._newer: list[SegmentEntry] = []

    def note(self, entry: SegmentEntry) -> None:
        """Takes in an entry that does not count, of a later offset than those before."""
        is_unfinished = entry.state == SegmentState.COPY_SEGMENT_STARTED or is_to_copy_again(entry)
        if is_unfinished and entry.max_timestamp_ms > self._oldest_ms and is_in_lineage(entry, self._log.log_end_offset, self._log.epochs):
            self._newer.append(entry)

    def pass_to(self, offset: int) -> int:
        """Goes on behind a copy. Returns the offset behind all copies so far."""
        self._at = max(self._at, offset)
        return self._at

    async def is_old(self, following: SegmentEntry) -> bool:
        """Tells if nothing before the next copy is newer than retention allows."""
        end = following.start_offset
        if self._at >= end:
            return True
        if any(each.start_offset < end and each.end_offset >= self._at for each in self._newer):
            return False
        return not await self._has_newer(self._at, end - 1, self._oldest_ms)


class _Shares:
    """Divides the bytes of copies that overlap, in the order of their offsets. Elections and crashes leave such copies.

    Apache Kafka counts their records several times, and then removes segments that retention.bytes would keep.
    """

    def __init__(self) -> None:
        self._end = -1

    def of(self, entry: SegmentEntry) -> int:
        """The bytes of the offsets that the copies before do not have."""
        new = min(entry.end_offset - self._end, entry.end_offset - entry.start_offset + 1)
        if new <= 0:
            return 0
        self._end = entry.end_offset
        return entry.size * new // (entry.end_offset - entry.start_offset + 1)


def is_unreferenced(entry: SegmentEntry, earliest_epoch: int) -> bool:
    """Tells if all epochs of the segment precede those of the log: no reader gets to it. The log start stays."""
    return all(epoch < earliest_epoch for epoch in entry.leader_epochs)


def is_of_lost_log(entry: SegmentEntry, log_start_offset: int, retention: Retention) -> bool:
    """Tells if an unreferenced segment has records that the log never had, and that retention.ms would keep.

    It is of a log whose replicas are all lost, and the store may be the only place that still has it.
    """
    return (
        entry.state == SegmentState.COPY_SEGMENT_FINISHED
        and entry.end_offset >= log_start_offset
        and (retention.retention_ms < 0 or entry.max_timestamp_ms > retention.now_ms - retention.retention_ms)
    )


def is_abandoned(entry: SegmentEntry, broker_id: int, now_ms: int) -> bool:
    """Tells if no broker will finish the copy, or its deletion began and did not end. For entries that this broker is not copying.

    A copy of another broker is abandoned after FOREIGN_COPY_LIMIT_MS, because a deposed leader may still be busy with it.
    """
    if entry.state == SegmentState.COPY_SEGMENT_STARTED:
        return entry.broker_id == broker_id or now_ms - entry.event_timestamp_ms > FOREIGN_COPY_LIMIT_MS
    return entry.state == SegmentState.DELETE_SEGMENT_STARTED


def _is_below(entry: SegmentEntry, log: LogBounds) -> bool:
    """Whether all of the segment is below the log start offset, and of no later leader than the log's first."""
    return entry.end_offset < log.log_start_offset and all(epoch <= log.epochs[0][0] for epoch in entry.leader_epochs)


def _counts(entry: SegmentEntry, log: LogBounds) -> bool:
    """Whether the bytes of the segment are in the store, stay there, and are part of the log."""
    return entry.state == SegmentState.COPY_SEGMENT_FINISHED and is_in_lineage(entry, log.log_end_offset, log.epochs)
