"""Makes a log durable in a thread.

A flush has three steps, so that the event loop never waits for the disk. `PartitionLog.prepare_flush` collects on the loop what must be
flushed, `FlushPlan.run` flushes it in a worker thread, `PartitionLog.finish_flush` moves the recovery point on the loop. `run` does all
three, where waiting is allowed.
"""

from typing import TYPE_CHECKING

from ottla.storage.segment.segment import Segment

SEGMENTS_AT_ONCE = 20
"""Segments per flush. Each takes the loop some 30 µs, because its index entries are written to the file."""

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog


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


def complete_up_to(log: "PartitionLog") -> int:
    """See `PartitionLog.complete_up_to`. A flush up to there is short work for the loop, however many segments there are."""
    end = _first_incomplete(log)
    segments = log.segments.between(log.recovery_point, end)
    return segments[SEGMENTS_AT_ONCE].base_offset if len(segments) > SEGMENTS_AT_ONCE else end


def prepare(log: "PartitionLog", up_to: int | None) -> FlushPlan | None:
    """See `PartitionLog.prepare_flush`.

    None, too, while a thread writes a snapshot of producers, which a recovery from `up_to` would need. Its completion calls `on_flush_due`.
    """
    recovery_point = log.log_end_offset if up_to is None else up_to
    if recovery_point <= log.recovery_point or log.is_closed or log.truncation is not None:
        return None
    if log.producer_state.writing is not None:
        return None
    segments = log.segments.between(log.recovery_point, recovery_point)
    try:
        if recovery_point > _first_incomplete(log):
            log.finish_rolls()
        for segment in segments:
            segment.write_out_indexes()
            _ = segment.file  # opened here, because the thread must not change the segment
    except OSError as error:
        raise log.disk_failure(log.directory, error) from error
    has_new_names = any(segment.base_offset >= log.recovery_point for segment in segments)
    holder = log.segments.floor(recovery_point)
    # Recovery would begin with this segment.
    snapshot = None if holder is None else log.producer_state.newest_snapshot_up_to(holder.base_offset)
    plan = FlushPlan(log, segments, snapshot, recovery_point, has_new_names=has_new_names)
    log.flushes.begin(plan)
    return plan


def run(log: "PartitionLog") -> None:
    """See `PartitionLog.flush`. Flushes some segments at a time, because a log may have more of them than the process may open files."""
    try:
        log.producer_state.finish_snapshot()
        log.finish_rolls()
    except OSError as error:
        raise log.disk_failure(log.directory, error) from error
    while True:
        up_to = complete_up_to(log)
        is_last = up_to >= log.active_segment.base_offset
        plan = prepare(log, None if is_last else up_to)
        if plan is None:
            return
        try:
            plan.run()
        except OSError as error:
            raise log.disk_failure(log.directory, error) from error
        log.finish_flush(plan)
        if is_last:
            return
        for segment in plan.segments:
            segment.release()


def _first_incomplete(log: "PartitionLog") -> int:
    if not log.unfinished_rolls:
        return log.active_segment.base_offset
    ended, begun, _ = log.unfinished_rolls[0]
    return (begun if ended is None else ended).base_offset
