"""Rolling: a log ends its active segment and begins another; methods of `PartitionLog`, kept in a file of their own.

It is done in two parts, for thousands of logs may roll at the same time, each because of an append that waits for it. `roll` does what the
append needs: a log file with its name, 0.15 ms. Everything else follows soon (`complete_roll`, 0.4 ms; `Rolls` has one done per turn of the
loop): the indexes of the segment that ended are completed and trimmed, those of the new one get their files, the snapshot of the producers
is written, and the flush becomes due that brings all of it to the disk. Whoever needs all of that now calls `finish_rolls` first: who
flushes, cuts, cleans, deletes segments or closes.

A crash in between leaves what a crash always leaves: a segment above the recovery point without good indexes, which are rebuilt. Where the
recovery point has reached the end, nothing would be: then the segment that ends is closed at once, as Apache Kafka expects to find it.
"""

import logging
from typing import TYPE_CHECKING, NamedTuple

from storage.disk.file_names import INDEX_SUFFIXES, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, file_name
from storage.errors import LogDirFailure
from storage.log import deletion as log_deletion
from storage.producers import log_snapshot
from storage.segment.segment import Segment

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

FILES_MADE_LATER = 3
MOST_UNFINISHED = 8
"""Of a log. Each holds files open: a log that rolls faster than they are completed, as with every batch, completes one with each roll."""
_INDEXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)


class Roll(NamedTuple):
    """What is left to do of one."""

    ended: Segment | None
    """The segment to be closed, if that is left to do."""
    begun: Segment
    snapshot: bytes | None
    """Of the producers as they were, if it is to be written."""


def roll(self: "PartitionLog", expected_next_offset: int = 0) -> Segment:
    """Ends the active segment and begins one at the log end offset, or `expected_next_offset` if higher. May raise OSError."""
    if len(self.unfinished_rolls) >= MOST_UNFINISHED:
        _finish_oldest(self)
    base_offset = max(expected_next_offset, self.log_end_offset)
    ended: Segment | None = self.active_segment
    if self.active_segment.base_offset == base_offset:
        if self.active_segment.size:
            raise LogDirFailure(self.log_dir, self.active_segment.path, f"a segment from offset {base_offset} on exists already")
        log.warning("%s: the empty active segment at offset %d is replaced", self.topic_partition, base_offset)
        self.finish_rolls()
        log_deletion.discard_segments(self, [self.active_segment])
        ended = None
    else:
        _remove_leftovers(self, base_offset)
        if self.recovery_point >= base_offset:
            self.active_segment.become_inactive()
            ended = None
    if ended is not None:
        ended.trim()  # at once: recovery takes what was preallocated for torn, and deletes all that follows
    begun = _begin_segment(self, base_offset)
    producers = self.producer_state
    producers.map_end_offset = base_offset
    writing = producers.begin_snapshot()
    if writing is not None:
        log_snapshot.write_in_thread(self, writing)
    self.unfinished_rolls.append(Roll(ended, begun, producers.encode_snapshot()))
    self.context.complete_roll_later(self)
    return begun


def complete_roll(self: "PartitionLog") -> None:
    """Does what is left to do of the oldest roll, unless somebody has done it; then the log is to be flushed. May raise OSError."""
    if self.unfinished_rolls:
        _finish_oldest(self)
    if self.producer_state.writing is None and not self.is_closed:
        self.context.on_flush_due(self)


def finish_rolls(self: "PartitionLog") -> None:
    """Every roll is complete on return. May raise OSError."""
    while self.unfinished_rolls:
        _finish_oldest(self)


def _finish_oldest(self: "PartitionLog") -> None:
    ended, begun, snapshot = self.unfinished_rolls[0]
    for suffix in _INDEXES if snapshot is None else (*_INDEXES, PRODUCER_SNAPSHOT_SUFFIX):
        self.context.take_spare_file(self.log_dir, f"{self.directory}/{file_name(begun.base_offset, suffix)}")
    if ended is not None:
        ended.become_inactive()
    begun.allocate_indexes()
    if snapshot is not None:
        self.producer_state.write_snapshot(begun.base_offset, snapshot)
    del self.unfinished_rolls[0]  # not before: what a disk refused is left to do
    log.info("%s: rolled a new segment at offset %d", self.topic_partition, begun.base_offset)


def _begin_segment(self: "PartitionLog", base_offset: int) -> Segment:
    context = self.context
    begun = Segment.create(
        context.filesystem,
        self.directory,
        base_offset,
        self.settings,
        now_ms=context.clock.now_ms(),
        roll_jitter_ms=context.roll_jitter_ms(self.settings),
        file=context.take_spare_file(self.log_dir, f"{self.directory}/{file_name(base_offset, LOG_SUFFIX)}"),
        has_index_files=False,
    )
    self.segments.add(begun)
    self.active_segment = begun
    return begun


def _remove_leftovers(self: "PartitionLog", base_offset: int) -> None:
    filesystem = self.context.filesystem
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        path = f"{self.directory}/{file_name(base_offset, suffix)}"
        if filesystem.exists(path):
            log.warning("%s stands where a new segment begins, and is no part of the log; deleted", path)
            filesystem.unlink(path)
