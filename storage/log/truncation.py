"""Cuts a log at its end.

A follower does it when its leader's history differs from its own. To cut a large file, to rename many and to read for producers what is
left takes long, so a thread does it (`Truncation.run`). As soon as it is asked for, the log says that it ends where it is to end, its
recovery point and leader epochs are those of the shorter log, and a `SegmentBeingTruncated` stands in the place of the segment that is cut:
whoever appends or reads there meanwhile is told to come again. When the thread is done, the segment takes its place.

A caller of `PartitionLog.truncate_to` or `truncate_fully_and_start_at` waits for all of that. A crash in between finds a log that ends
where it was cut or, for whole segments, later: what is too long then is cut again, for it still differs from the leader's.
"""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.disk.file_names import INDEX_SUFFIXES, LOG_SUFFIX, offset_of_file_name
from storage.disk.filesystem import FileSystem
from storage.disk.movable_directory import MovableDirectory
from storage.disk.yielding import yield_to_loop
from storage.log.deletion import discard_files, names_of, rename_snapshots
from storage.log.producer_replay import rebuild_producer_state
from storage.segment.log_segments import LogSegments
from storage.segment.segment import Segment

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

OnTruncated = Callable[[Exception | None], None]
TRUNCATE_LOG = "truncate-log"
_SEGMENTS_AT_ONCE = 10


class Truncation:
    """A cut that is under way. What it holds is the thread's until `run` has returned."""

    __slots__ = (
        "_directory",
        "_discards",
        "_earlier",
        "_end_offset",
        "_filesystem",
        "_gone",
        "_has_run",
        "_jitter_ms",
        "_lock",
        "_log_start_offset",
        "_now_ms",
        "_settings",
        "asked_meanwhile",
        "error",
        "producers",
        "segment",
        "snapshots",
        "then",
    )

    def __init__(self, log: "PartitionLog", end_offset: int, segment: Segment | None, gone: list[Segment], then: OnTruncated) -> None:
        """To cut `segment` at `end_offset`, without the `gone` ones; without a segment, to begin anew there."""
        context, settings = log.context, log.settings
        self._directory = log.directory
        self._discards = tuple(log.discards)
        self._filesystem = MovableDirectory(context.filesystem, log.small_files)
        self._now_ms = context.clock.now_ms()
        self._jitter_ms = context.roll_jitter_ms(settings)
        self._settings = settings
        self._earlier = [] if segment is None else [base for base in log.segments.bases if base < segment.base_offset]
        self._end_offset = end_offset
        self._log_start_offset = log.log_start_offset
        self._gone = gone
        self._lock = threading.Lock()
        self._has_run = False
        self.segment = segment
        """The last one of the log; when it begins anew, once `run` has returned."""
        self.producers = log.producer_state
        self.snapshots: list[str] = []
        """The names of those that are to be deleted."""
        self.then = then
        self.error: Exception | None = None
        self.asked_meanwhile: list[Callable[[], None]] = []
        for each in (*gone, *([] if segment is None else [segment])):
            each.use_filesystem(self._filesystem)
        self.producers.use_filesystem(self._filesystem)

    @property
    def log_start_offset(self) -> int:
        """What the producers were told of it."""
        return self._log_start_offset

    def run(self) -> None:
        """Blocks until it is done, whoever does it; for any thread. Raises what went wrong, mostly OSError."""
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

    def _cut(self, segment: Segment) -> None:
        # The last one first: a crash leaves no hole.
        _discard(self._gone[::-1])
        _remove_unknown_files(self._filesystem, self._directory, {*self._earlier, segment.base_offset})
        segment.truncate_to(self._end_offset, self._now_ms)
        self.snapshots = rename_snapshots(self._filesystem, self.producers, self._gone)
        segments = LogSegments()
        for base_offset in self._earlier:
            # Those of the log are read on the loop meanwhile.
            segments.add(Segment(self._filesystem, self._directory, base_offset, self._settings, now_ms=self._now_ms))
        segments.add(segment)
        rebuild_producer_state(
            self.producers, segments, self._log_start_offset, self._end_offset, self._now_ms, yield_to_loop=yield_to_loop
        )

    def _begin_anew(self) -> None:
        # The last one first: a crash leaves no hole. And a log is never without a segment, not even on the disk: the first one goes when
        # the new one is there, or just before it when both have the same name.
        offset = self._end_offset
        # The snapshots go before that, for good: beside a new segment one would bring back transactions that nothing is left of.
        self.producers.truncate_fully_and_start_at(offset)
        self._filesystem.sync_directory(self._directory)
        left = self._gone[:1] if self._gone[0].base_offset != offset else []
        _discard(self._gone[len(left) :][::-1])
        _remove_unknown_files(self._filesystem, self._directory, {each.base_offset for each in left})
        segments = LogSegments()
        self.segment = Segment.create(
            self._filesystem, self._directory, offset, self._settings, now_ms=self._now_ms, roll_jitter_ms=self._jitter_ms
        )
        segments.add(self.segment)
        discard_files(left)
        rebuild_producer_state(self.producers, segments, self._log_start_offset, offset, self._now_ms)

    def give_back(self, filesystem: FileSystem, directory: str) -> list[str]:
        """Everything is the loop's again, in the directory as it is called now; returns the names of the files that are left over."""
        for each in (*self._gone, *([] if self.segment is None else [self.segment])):
            each.use_filesystem(filesystem)
            each.move_to(directory)
        self.producers.use_filesystem(filesystem)
        self.producers.directory = directory
        return [*names_of(self._gone), *self.snapshots]


def _discard(segments: list[Segment]) -> None:
    for at in range(0, len(segments), _SEGMENTS_AT_ONCE):
        discard_files(segments[at : at + _SEGMENTS_AT_ONCE])
        yield_to_loop()


def _remove_unknown_files(filesystem: FileSystem, directory: str, known: set[int]) -> None:
    """A roll that failed half way may have left a segment behind the end; the next start would take it for a part of the log."""
    for name in filesystem.list_directory(directory):
        offset = offset_of_file_name(name)
        if name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES)) and offset is not None and offset not in known:
            log.warning("%s/%s is no part of the log; deleted", directory, name)
            filesystem.unlink(f"{directory}/{name}")
