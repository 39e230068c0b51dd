"""Makes a log durable in a thread.

A flush has three steps, so that the event loop never waits for the disk. `PartitionLog.prepare_flush` collects on the loop what must be
flushed, `FlushPlan.run` flushes it in a worker thread, `finish_flush` moves the recovery point on the loop.
"""

from typing import TYPE_CHECKING

from storage.segment.segment import Segment

SEGMENTS_AT_ONCE = 20
"""Segments per flush. Each takes the loop some 30 µs, because its index entries are written to the file."""

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog


class FlushPlan:
    """The files of one flush. The log may move its recovery point to `recovery_point` once `run` has returned."""

    __slots__ = ("_clock", "_filesystem", "_has_new_names", "_small_files", "_snapshot", "recovery_point", "seconds", "segments")

    def __init__(
        self,
        log: "PartitionLog",
        segments: list[Segment],
        snapshot: str | None,
        recovery_point: int,
        *,
        has_new_names: bool,
    ) -> None:
        self._clock = log.context.clock
        self._filesystem = log.context.filesystem
        self._small_files = log.small_files
        self.segments = segments
        self._snapshot = snapshot
        self._has_new_names = has_new_names
        self.recovery_point = recovery_point
        self.seconds = 0.0
        """Duration in seconds, once `run` has returned."""

    def run(self) -> None:
        """Blocks until everything is on the disk. Changes no state, so it may run on any thread. Raises OSError.

        Segments that are deleted meanwhile are skipped.
        """
        began = self._clock.monotonic()
        for segment in self.segments:
            try:
                segment.sync()
            except FileNotFoundError:
                continue
        if self._snapshot is not None:
            try:
                file = self._filesystem.open(self._snapshot)
            except FileNotFoundError:
                pass
            else:
                file.sync()
                file.close()
        if self._has_new_names:
            self._small_files.sync_directory()
        self.seconds = self._clock.monotonic() - began
