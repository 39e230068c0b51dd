"""Making a log durable: methods of `PartitionLog`, kept in a file of their own.

In three steps, so that the event loop never waits for the disk: `prepare_flush` on the loop notes what is to be flushed,
`FlushPlan.run` in a worker thread flushes it, `finish_flush` on the loop moves the recovery point.
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


def complete_up_to(self: "PartitionLog") -> int:
    """Where those segments end that have ended, and their rolls too; after `SEGMENTS_AT_ONCE` that are not flushed yet, if there are more.

    To flush so far is short work for the loop, however many there are.
    """
    end = _first_incomplete(self)
    segments = self.segments.between(self.recovery_point, end)
    return segments[SEGMENTS_AT_ONCE].base_offset if len(segments) > SEGMENTS_AT_ONCE else end


def _first_incomplete(self: "PartitionLog") -> int:
    if not self.unfinished_rolls:
        return self.active_segment.base_offset
    ended, begun, _ = self.unfinished_rolls[0]
    return (begun if ended is None else ended).base_offset


def prepare_flush(self: "PartitionLog", up_to: int | None = None) -> FlushPlan | None:
    """What has to be flushed so that everything below `up_to` (the log end offset) survives a crash; None if nothing has to be.

    None, too, while a thread is writing a snapshot of producers: a recovery from there on would need it. `on_flush_due` is told when it is
    complete. Raises LogDirFailure.
    """
    recovery_point = self.log_end_offset if up_to is None else up_to
    if recovery_point <= self.recovery_point or self.is_closed or self.truncation is not None:
        return None
    if self.producer_state.writing is not None:
        return None
    segments = self.segments.between(self.recovery_point, recovery_point)
    try:
        if recovery_point > _first_incomplete(self):
            self.finish_rolls()
        for segment in segments:
            segment.write_out_indexes()
            _ = segment.file  # opened here, for the thread must not change the segment
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    has_new_names = any(segment.base_offset >= self.recovery_point for segment in segments)
    snapshot = self.producer_state.latest_snapshot_offset
    path = None if snapshot is None else self.producer_state.snapshot_path(snapshot)
    plan = FlushPlan(self, segments, path, recovery_point, has_new_names=has_new_names)
    self.flushes.append(plan)
    return plan


def finish_flush(self: "PartitionLog", plan: FlushPlan) -> None:
    """The plan has run: moves the recovery point, but not above where the log was truncated meanwhile."""
    self.context.on_flushed(plan.seconds)
    self.give_up_flush(plan)
    if plan.recovery_point > self.recovery_point:
        self.recovery_point = plan.recovery_point
        self.next_flush_offset = plan.recovery_point + self.settings.flush_messages - 1


def give_up_flush(self: "PartitionLog", plan: FlushPlan) -> None:
    """The plan runs no more: the recovery point stays, and nobody waits for it."""
    if plan in self.flushes:
        self.flushes.remove(plan)


def flush(self: "PartitionLog") -> None:
    """All three steps at once, for shutdown and for callers that may block. Raises LogDirFailure.

    A log may have more segments to be flushed than the process may have files: so some at a time.
    """
    try:
        self.producer_state.finish_snapshot()
        self.finish_rolls()
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    while True:
        up_to = self.complete_up_to()
        is_last = up_to >= self.active_segment.base_offset
        plan = self.prepare_flush(None if is_last else up_to)
        if plan is None:
            return
        try:
            plan.run()
        except OSError as error:
            raise self.disk_failure(self.directory, error) from error
        self.finish_flush(plan)
        if is_last:
            return
        for segment in plan.segments:
            segment.release()
