"""Truncates a log at its end.

A follower does so when its leader's history differs from its own. Truncating a large file, renaming many files and reading the rest for
producers take long, so a thread does this work (`Truncation.run`). From the beginning the log reports its new end, with a recovery point
and leader epochs that match. A `SegmentBeingTruncated` replaces the truncated segment, and refuses appends and reads: the callers retry
later. When the thread is done and the checkpoints of the log directory are durable, the real segment takes its place again.

`Truncations.truncate_to` and `truncate_fully_and_start_at` wait for the thread's work only; their callers write the checkpoints. After a
crash in between, the log ends at the new end or, if whole segments are left, later. Then it still differs from the leader's log and is
truncated again.

Appends wait for the checkpoints because a power cut may damage the appended records. The next start checks the records above the recovery
point in the checkpoint, and finds leader epochs only there. With a former recovery point it would accept damaged records as flushed, and
with a former log start offset it would delete the log.

A disk failure takes the log directory offline. After any other error of the thread, for example a lack of memory or damage in the file, the
log keeps refusing, and the work is repeated until it succeeds. Otherwise the partition would be unusable until the next start.
"""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.storage.disk.file_names import INDEX_SUFFIXES, LOG_SUFFIX, offset_of_file_name
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.movable_directory import MovableDirectory
from ottla.storage.disk.yielding import yield_to_loop
from ottla.storage.log.discards import discard_files, names_of, rename_snapshots
from ottla.storage.log.producer_replay import rebuild_producer_state
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

OnTruncated = Callable[[Exception | None], None]
_SEGMENTS_AT_ONCE = 10
_FIRST_RETRY_MS = 1000
"""Delay before a truncation is repeated for the first time, milliseconds."""
_UNKNOWN_OFFSET = -1


class Truncation:
    """A truncation in progress. Until `run` has returned, its objects belong to the thread."""

    __slots__ = (
        "_directory",
        "_discards",
        "_earlier",
        "_filesystem",
        "_has_run",
        "_jitter_ms",
        "_lock",
        "_now_ms",
        "_settings",
        "asked_meanwhile",
        "end_offset",
        "error",
        "gone",
        "is_full",
        "log_start_offset",
        "producers",
        "retry_ms",
        "segment",
        "snapshot",
        "snapshots",
        "then",
    )

    def __init__(
        self,
        log: "PartitionLog",
        end_offset: int,
        log_start_offset: int,
        segment: Segment | None,
        gone: list[Segment],
        then: OnTruncated,
        snapshot: bytes | None = None,
    ) -> None:
        """To truncate `segment` to `end_offset` and remove the segments `gone`. Without a segment the log is emptied and begins there.

        `snapshot` has the producers that it has then, if there are any.
        """
        context, settings = log.context, log.segments.settings
        self._directory = log.directory
        self._discards = tuple(log.discards.in_progress)
        self._filesystem = MovableDirectory(context.filesystem, log.files.small_files)
        self._now_ms = context.clock.now_ms()
        self._jitter_ms = context.roll_jitter_ms(settings)
        self._settings = settings
        self._earlier = [] if segment is None else [base for base in log.segments.bases if base < segment.base_offset]
        self._lock = threading.Lock()
        self._has_run = False
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        """The log start offset for which the producers are rebuilt."""
        self.gone = gone
        """Segments that are removed as a whole."""
        self.is_full = segment is None
        """Whether the log is emptied."""
        self.segment = segment
        """Last segment of the log. If the log is emptied, it exists once `run` has returned."""
        self.producers = log.producer_state
        self.snapshot = snapshot
        """Content of a snapshot of the producers with which an emptied log begins."""
        self.snapshots: list[str] = []
        """Names of the snapshots to be deleted."""
        self.then = then
        self.retry_ms = _FIRST_RETRY_MS
        """Delay before the next repetition, if `run` fails."""
        self.error: Exception | None = None
        self.asked_meanwhile: list[Callable[[], None]] = []
        for each in (*gone, *([] if segment is None else [segment])):
            each.use_filesystem(self._filesystem)
        self.producers.use_filesystem(self._filesystem)

    def run(self) -> None:
        """Do the work, or wait until another thread has done it; for any thread. Raises its error, mostly OSError."""
        with self._lock:
            if not self._has_run:
                self._has_run = True
                try:
                    for discard in self._discards:
                        discard.run()
                    self.producers.finish_snapshot()
                    if self.segment is None:
                        self._begin_anew()
                    else:
                        self._cut(self.segment)
                except Exception as error:
                    self.error = error
        if self.error is not None:
            raise self.error

    def prepare_repetition(self) -> None:
        """Let `run` do the work again, after it has failed. Work that was done before is skipped, or repeated without an effect."""
        self._has_run = False
        self.error = None
        self.producers.map_end_offset = _UNKNOWN_OFFSET  # they may have been dropped, and not read again

    def _cut(self, segment: Segment) -> None:
        # The last one first, so that a crash leaves no gap.
        _discard(self.gone[::-1])
        _remove_unknown_files(self._filesystem, self._directory, {*self._earlier, segment.base_offset})
        self._sync_names()
        segment.truncate_to(self.end_offset, self._now_ms)
        self.snapshots += rename_snapshots(self._filesystem, self.producers, self.gone)
        segments = LogSegments(self._settings)
        for base_offset in self._earlier:
            # New objects, because the event loop reads through those of the log meanwhile.
            segments.add(Segment(self._filesystem, self._directory, base_offset, self._settings, now_ms=self._now_ms))
        segments.add(segment)
        rebuild_producer_state(self.producers, segments, self.log_start_offset, self.end_offset, self._now_ms, yield_to_loop=yield_to_loop)

    def _begin_anew(self) -> None:
        # The last one first, so that a crash leaves no gap. The disk always has a segment of the log: the first one is removed after the
        # new one exists, or just before if both have the same name.
        offset = self.end_offset
        # The snapshots are deleted before. A snapshot beside the new segment would restore transactions that have no records any more.
        self.producers.truncate_fully_and_start_at(offset)
        self._filesystem.sync_directory(self._directory)
        left = self.gone[:1] if self.gone[0].base_offset != offset else []
        _discard(self.gone[len(left) :][::-1])
        _remove_unknown_files(self._filesystem, self._directory, {each.base_offset for each in left})
        segments = LogSegments(self._settings)
        self.segment = Segment.create(
            self._filesystem, self._directory, offset, self._settings, now_ms=self._now_ms, roll_jitter_ms=self._jitter_ms
        )
        segments.add(self.segment)
        discard_files(left)
        self._sync_names()
        rebuild_producer_state(self.producers, segments, self.log_start_offset, offset, self._now_ms)
        if self.snapshot is not None:
            self.producers.start_with(self.snapshot, self._now_ms)
            self._filesystem.sync_directory(self._directory)

    def _sync_names(self) -> None:
        """Make the removal of segments durable before records are appended in their place.

        Some file systems may bring them back after a power cut, although the appended records were synced.
        """
        if self.gone:
            self._filesystem.sync_directory(self._directory)

    def give_back(self, filesystem: FileSystem, directory: str) -> list[str]:
        """Return everything to the event loop. `directory` is the current name of the directory. Returns the names of files to delete
        later."""
        for each in (*self.gone, *([] if self.segment is None else [self.segment])):
            each.use_filesystem(filesystem)
            each.move_to(directory)
        self.producers.use_filesystem(filesystem)
        self.producers.directory = directory
        return [*names_of(self.gone), *self.snapshots]


def _discard(segments: list[Segment]) -> None:
    for at in range(0, len(segments), _SEGMENTS_AT_ONCE):
        discard_files(segments[at : at + _SEGMENTS_AT_ONCE])
        yield_to_loop()


def _remove_unknown_files(filesystem: FileSystem, directory: str, known: set[int]) -> None:
    """Delete segments behind the end that a failed roll left. The next start would take them for a part of the log."""
    for name in filesystem.list_directory(directory):
        offset = offset_of_file_name(name)
        if name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES)) and offset is not None and offset not in known:
            logger.warning("%s/%s is not part of the log; deleted", directory, name)
            filesystem.unlink(f"{directory}/{name}")
