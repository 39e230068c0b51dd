"""Makes a log durable in a thread.

A flush has three steps, so that the event loop never waits for the disk: `PartitionLog.prepare_flush` on the loop notes what is to be
flushed, `FlushPlan.run` in a worker thread flushes it, `finish_flush` on the loop moves the recovery point.
"""

from typing import TYPE_CHECKING

from storage.segment.segment import Segment

SEGMENTS_AT_ONCE = 20
"""Each costs some 30 µs, for its index entries are written out."""

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog


class FlushPlan:
    """What one flush covers. `recovery_point` holds once `run` has returned."""

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
        """How long it took, once `run` has returned."""

    def run(self) -> None:
        """Blocks until everything is on the disk. Touches no state, so it may run on any thread. Raises OSError.

        A segment that is deleted meanwhile needs no flush.
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
