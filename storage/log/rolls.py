"""Ends the active segment of a log and begins another.

A roll is done in two parts, because thousands of logs may roll at the same time, each during an append that waits for it. `begin` does the
part that the append needs: it gives a log file its name, 0.15 ms. The rest follows soon (`complete`, 0.4 ms; `RollCompletion` completes one
per turn of the loop). It completes and trims the indexes of the ended segment, creates the index files of the new one, writes the snapshot
of the producers, and requests a flush of all that. Callers that need the rest at once call `finish` first: flushes, truncations, cleanings,
deletions of segments, and closing.

A crash in between leaves a segment above the recovery point without good indexes, as any crash does, and the next start rebuilds them. If
the recovery point has reached the end, the next start would rebuild nothing. In that case the ended segment is completed at once, as Apache
Kafka expects.

A thread writes a snapshot that takes long, a few hundred producers at a time. It yields to the event loop in between, because Python code
in a thread holds the interpreter, too. Until the snapshot is complete, the log is not flushed and no segment of it is deleted. So a crash
leaves the same state as before the roll. A disk failure takes the log directory offline. After any other error, for example a lack of
memory, the snapshot is begun again. Otherwise the log would never be flushed again.
"""

import logging
from typing import NamedTuple

from ottla.storage.disk.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
)
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.discards import Discards
from ottla.storage.log.log_files import LogFiles
from ottla.storage.producers.snapshot import SnapshotWrite
from ottla.storage.producers.state_manager import ProducerStateManager
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

_INDEXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_SNAPSHOT = "producer-snapshot"
_RETRY_MS = 10_000
"""Delay before a snapshot is begun again, milliseconds."""

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


class Rolls:
    """The rolls of one log. Called on the event loop."""

    __slots__ = ("_discards", "_producers", "_segments", "files", "unfinished")

    def __init__(self, files: LogFiles, segments: LogSegments, producers: ProducerStateManager, discards: Discards) -> None:
        self.files = files
        self._segments = segments
        self._producers = producers
        self._discards = discards
        self.unfinished: list[Roll] = []  # a deque takes 0.6 KB, and would be empty in most logs

    @property
    def complete_up_to(self) -> int:
        """The end of the segments whose rolls are complete."""
        if not self.unfinished:
            return self._segments.active.base_offset
        ended, begun, _ = self.unfinished[0]
        return (begun if ended is None else ended).base_offset

    def begin(self, base_offset: int, recovery_point: int) -> Segment:
        """End the active segment and begin one at `base_offset`. Everything below `recovery_point` is on the disk. May raise OSError."""
        files = self.files
        if len(self.unfinished) >= MOST_UNFINISHED:
            self._finish_oldest()
        active = self._segments.active
        ended: Segment | None = active
        if active.base_offset == base_offset:
            if active.size:
                raise LogDirFailure(files.log_dir, active.path, f"a segment from offset {base_offset} on exists already")
            logger.warning("%s: the empty active segment at offset %d is replaced", files.topic_partition, base_offset)
            self.finish()
            self._discards.discard_now([active])
            ended = None
        else:
            self._remove_leftovers(base_offset)
            if recovery_point >= base_offset:
                active.become_inactive()
                ended = None
        if ended is not None:
            ended.trim()  # at once: recovery would take preallocated bytes for torn, and delete all later segments
        begun = self._begin_segment(base_offset)
        producers = self._producers
        producers.map_end_offset = base_offset
        writing = producers.begin_snapshot()
        if writing is not None:
            self._write_snapshot(writing)
        self.unfinished.append(Roll(ended, begun, producers.encode_snapshot()))
        files.context.complete_roll_later(self)
        return begun

    def complete(self) -> None:
        """Complete the oldest roll, if it is still incomplete, and request a flush. May raise OSError."""
        if self.unfinished:
            self._finish_oldest()
        if self._producers.writing is None and not self.files.is_closed:
            self.files.request_flush()

    def finish(self) -> None:
        """Complete all rolls. May raise OSError."""
        while self.unfinished:
            self._finish_oldest()

    def _finish_oldest(self) -> None:
        files = self.files
        ended, begun, snapshot = self.unfinished[0]
        for suffix in _INDEXES if snapshot is None else (*_INDEXES, PRODUCER_SNAPSHOT_SUFFIX):
            files.context.take_spare_file(files.log_dir, f"{files.directory}/{file_name(begun.base_offset, suffix)}")
        if ended is not None:
            ended.become_inactive()
        begun.allocate_indexes()
        if snapshot is not None:
            self._producers.write_snapshot(begun.base_offset, snapshot)
        del self.unfinished[0]  # only now, so that the work is repeated after a disk error
        files.context.roll_lines.add("%s: rolled a new segment at offset %d", files.topic_partition, begun.base_offset)

    def _begin_segment(self, base_offset: int) -> Segment:
        files, settings = self.files, self._segments.settings
        context = files.context
        begun = Segment.create(
            context.filesystem,
            files.directory,
            base_offset,
            settings,
            now_ms=context.clock.now_ms(),
            roll_jitter_ms=context.roll_jitter_ms(settings),
            file=context.take_spare_file(files.log_dir, f"{files.directory}/{file_name(base_offset, LOG_SUFFIX)}"),
            has_index_files=False,
        )
        self._segments.add(begun)
        return begun

    def _remove_leftovers(self, base_offset: int) -> None:
        filesystem = self.files.context.filesystem
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            path = f"{self.files.directory}/{file_name(base_offset, suffix)}"
            if filesystem.exists(path):
                logger.warning("%s has the name of a new segment's file, and is not part of the log; deleted", path)
                filesystem.unlink(path)

    # ---- snapshots that a thread writes

    def _write_snapshot(self, writing: SnapshotWrite) -> None:
        """Have a thread write the next piece."""
        # One queue per log directory, because each may be a disk of its own.
        self.files.context.submit(f"{_SNAPSHOT} {self.files.log_dir}", writing.step, lambda error: self._on_step(writing, error))

    def _on_step(self, writing: SnapshotWrite, error: BaseException | None) -> None:
        files = self.files
        if not self._is_current(writing):
            return  # another caller has finished it
        if error is not None and not isinstance(error, OSError):
            logger.error(
                "%s: a snapshot of its producers could not be written (%r); before it is, the log is not flushed and no segment of it "
                "deleted; trying again in %d ms",
                files.topic_partition, error, _RETRY_MS, exc_info=error,
            )  # fmt: skip
            files.context.schedule(_SNAPSHOT, _RETRY_MS, 0, lambda: self._begin_again(writing))
            return
        if error is None and not writing.is_done:
            self._write_snapshot(writing)
            return
        try:
            following = self._producers.end_snapshot()  # raises the error again, if there was one
        except OSError as found:
            files.context.on_failure(files.failure(found))
            return
        if following is not None:
            self._write_snapshot(following)
        else:
            files.request_flush()

    def _begin_again(self, writing: SnapshotWrite) -> None:
        if self._is_current(writing):
            self._write_snapshot(writing)

    def _is_current(self, writing: SnapshotWrite) -> bool:
        return not self.files.is_closed and self._producers.writing is writing
