"""Ends the active segment of a log and begins another.

The functions are called on the event loop by methods of `PartitionLog`. A roll is done in two parts, because thousands of logs may roll at
the same time, each during an append that waits for it. `begin` does the part that the append needs: it gives a log file its name, 0.15 ms.
The rest follows soon (`complete`, 0.4 ms; `Rolls` completes one per turn of the loop). It completes and trims the indexes of the ended
segment, creates the index files of the new one, writes the snapshot of the producers, and requests a flush of all that. Callers that need
the rest at once call `finish_all` first: flushes, truncations, cleanings, deletions of segments, and closing.

A crash in between leaves a segment above the recovery point without good indexes, as any crash does, and the next start rebuilds them. If
the recovery point has reached the end, the next start would rebuild nothing. In that case the ended segment is completed at once, as Apache
Kafka expects.
"""

import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.disk.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
)
from ottla.storage.errors import LogDirFailure
from ottla.storage.log import deletion
from ottla.storage.producers import log_snapshot
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_INDEXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)

FILES_MADE_LATER = 3
MOST_UNFINISHED = 8
"""Incomplete rolls of a log, each of which holds files open. A log that rolls faster, say with every batch, completes one per roll."""


class Roll(NamedTuple):
    """The remaining work of one roll."""

    ended: Segment | None
    """Segment that must be completed; None if it is complete."""
    begun: Segment
    snapshot: bytes | None
    """Snapshot of the producers at the roll, if it must be written."""


def begin(log: "PartitionLog", expected_next_offset: int) -> Segment:
    """See `PartitionLog.roll`."""
    if len(log.unfinished_rolls) >= MOST_UNFINISHED:
        _finish_oldest(log)
    base_offset = max(expected_next_offset, log.log_end_offset)
    ended: Segment | None = log.active_segment
    if log.active_segment.base_offset == base_offset:
        if log.active_segment.size:
            raise LogDirFailure(log.log_dir, log.active_segment.path, f"a segment from offset {base_offset} on exists already")
        logger.warning("%s: the empty active segment at offset %d is replaced", log.topic_partition, base_offset)
        finish_all(log)
        deletion.discard_segments(log, [log.active_segment])
        ended = None
    else:
        _remove_leftovers(log, base_offset)
        if log.recovery_point >= base_offset:
            log.active_segment.become_inactive()
            ended = None
    if ended is not None:
        ended.trim()  # at once: recovery would take preallocated bytes for torn, and delete all later segments
    begun = _begin_segment(log, base_offset)
    producers = log.producer_state
    producers.map_end_offset = base_offset
    writing = producers.begin_snapshot()
    if writing is not None:
        log_snapshot.write_in_thread(log, writing)
    log.unfinished_rolls.append(Roll(ended, begun, producers.encode_snapshot()))
    log.context.complete_roll_later(log)
    return begun


def complete(log: "PartitionLog") -> None:
    """See `PartitionLog.complete_roll`."""
    if log.unfinished_rolls:
        _finish_oldest(log)
    if log.producer_state.writing is None and not log.is_closed:
        log.context.on_flush_due(log)


def finish_all(log: "PartitionLog") -> None:
    """See `PartitionLog.finish_rolls`."""
    while log.unfinished_rolls:
        _finish_oldest(log)


def _finish_oldest(log: "PartitionLog") -> None:
    ended, begun, snapshot = log.unfinished_rolls[0]
    for suffix in _INDEXES if snapshot is None else (*_INDEXES, PRODUCER_SNAPSHOT_SUFFIX):
        log.context.take_spare_file(log.log_dir, f"{log.directory}/{file_name(begun.base_offset, suffix)}")
    if ended is not None:
        ended.become_inactive()
    begun.allocate_indexes()
    if snapshot is not None:
        log.producer_state.write_snapshot(begun.base_offset, snapshot)
    del log.unfinished_rolls[0]  # only now, so that the work is repeated after a disk error
    log.context.roll_lines.add(log.topic_partition, begun.base_offset)


def _begin_segment(log: "PartitionLog", base_offset: int) -> Segment:
    context = log.context
    begun = Segment.create(
        context.filesystem,
        log.directory,
        base_offset,
        log.settings,
        now_ms=context.clock.now_ms(),
        roll_jitter_ms=context.roll_jitter_ms(log.settings),
        file=context.take_spare_file(log.log_dir, f"{log.directory}/{file_name(base_offset, LOG_SUFFIX)}"),
        has_index_files=False,
    )
    log.segments.add(begun)
    log.active_segment = begun
    return begun


def _remove_leftovers(log: "PartitionLog", base_offset: int) -> None:
    filesystem = log.context.filesystem
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        path = f"{log.directory}/{file_name(base_offset, suffix)}"
        if filesystem.exists(path):
            logger.warning("%s has the name of a new segment's file, and is not part of the log; deleted", path)
            filesystem.unlink(path)
