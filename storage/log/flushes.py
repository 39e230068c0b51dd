"""Makes a log durable in a thread.

A flush has three steps, so that the event loop never waits for the disk. `Flushes.prepare` collects on the loop what must be flushed,
`FlushPlan.run` flushes it in a worker thread, `Flushes.finish` moves the recovery point on the loop. `Flushes.run` does all three, where
waiting is allowed. `ottla.storage.upkeep.flusher` decides when.

Invariants: the recovery point, the due offset and the recovery points of the plans are not beyond the log end offset, because a truncation
lowers all of them. Only a truncation moves the recovery point back.
"""

from typing import final

from ottla.storage.log.log_files import LogFiles
from ottla.storage.log.rolls import Rolls
from ottla.storage.producers.state_manager import ProducerStateManager
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.segment import NEVER, Segment

SEGMENTS_AT_ONCE = 20
"""Segments per flush. Each takes the loop some 30 µs, because its index entries are written to the file."""


@final
class FlushPlan:
    """The files of one flush. The log may move its recovery point to `recovery_point` once `run` has returned."""

    __slots__ = ("_clock", "_filesystem", "_has_new_names", "_small_files", "_snapshot", "recovery_point", "seconds", "segments")

    def __init__(
        self,
        files: LogFiles,
        segments: list[Segment],
        snapshot: str | None,
        recovery_point: int,
        *,
        has_new_names: bool,
    ) -> None:
        self._clock = files.context.clock
        self._filesystem = files.context.filesystem
        self._small_files = files.small_files
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


@final
class Flushes:
    """The flushes of one log: what is done, in progress and due. Called on the event loop."""

    __slots__ = (
        "_files",
        "_flush_messages",
        "_producers",
        "_rolls",
        "_segments",
        "due_offset",
        "plans",
        "recovery_point",
        "request_offset",
    )

    def __init__(self, files: LogFiles, segments: LogSegments, producers: ProducerStateManager, rolls: Rolls, recovery_point: int) -> None:
        self._files = files
        self._segments = segments
        self._producers = producers
        self._rolls = rolls
        self.recovery_point = recovery_point
        """Everything below survives a crash. The next start checks the records from here on."""
        self.due_offset = 0
        """End of the records that had been appended when `flush.messages` was reached. They are acknowledged only once they are on the
        disk."""
        self.request_offset = 0
        """The log end offset beyond which the next flush is due."""
        self.plans: list[FlushPlan] = []
        """The flushes in progress."""
        self._flush_messages = 0
        self.use_settings(segments.settings)

    def complete_up_to(self) -> int:
        """The end of the segments whose rolls are complete, or of the first `SEGMENTS_AT_ONCE` that are not flushed.

        A flush up to there is short work for the loop, however many segments there are.
        """
        end = self._rolls.complete_up_to
        segments = self._segments.between(self.recovery_point, end)
        return segments[SEGMENTS_AT_ONCE].base_offset if len(segments) > SEGMENTS_AT_ONCE else end

    def prepare(self, up_to: int) -> FlushPlan | None:
        """A plan for the flush after which everything below `up_to` survives a crash. Raises LogDirFailure.

        None if there is nothing to flush; while the log is being truncated; and while a thread writes a snapshot of producers, which a
        recovery from `up_to` would need. Its completion calls `on_flush_due`.
        """
        if up_to <= self.recovery_point or self._files.is_closed or self._segments.is_being_truncated:
            return None
        if self._producers.writing is not None:
            return None
        segments = self._segments.between(self.recovery_point, up_to)
        try:
            if up_to > self._rolls.complete_up_to:
                self._rolls.finish()
            for segment in segments:
                segment.write_out_indexes()
                _ = segment.file  # opened here, because the thread must not change the segment
        except OSError as error:
            raise self._files.failure(error) from error
        has_new_names = any(segment.base_offset >= self.recovery_point for segment in segments)
        holder = self._segments.floor(up_to)
        # Recovery would begin with this segment.
        snapshot = None if holder is None else self._producers.newest_snapshot_up_to(holder.base_offset)
        plan = FlushPlan(self._files, segments, snapshot, up_to, has_new_names=has_new_names)
        self.plans.append(plan)
        return plan

    def finish(self, plan: FlushPlan) -> None:
        """Report the duration of a plan that has run, and move the recovery point, but not beyond a truncation that happened meanwhile."""
        self._files.context.on_flushed(plan.seconds)
        self.give_up(plan)
        self.advance(plan.recovery_point)

    def run(self, log_end_offset: int) -> None:
        """Do all three steps of a flush, for shutdown and for callers that may block. Raises LogDirFailure.

        Flushes some segments at a time, because a log may have more of them than the process may open files.
        """
        if self._segments.is_being_truncated:
            return
        try:
            self._producers.finish_snapshot()
            self._rolls.finish()
        except OSError as error:
            raise self._files.failure(error) from error
        while True:
            up_to = self.complete_up_to()
            is_last = up_to >= self._segments.active.base_offset
            plan = self.prepare(log_end_offset if is_last else up_to)
            if plan is None:
                return
            try:
                plan.run()
            except OSError as error:
                raise self._files.failure(error) from error
            self.finish(plan)
            if is_last:
                return
            for segment in plan.segments:
                segment.release()

    def use_settings(self, settings: LogSettings) -> None:
        """Use another `flush.messages`, counted from the recovery point."""
        self._flush_messages = settings.flush_messages
        self._request_after(self.recovery_point)

    def covers(self, end_offset: int) -> bool:
        """Whether the records below `end_offset` are on the disk, if `flush.messages` requires that before an acknowledgement."""
        return not self.recovery_point < end_offset <= self.due_offset

    def become_due(self, end_offset: int) -> None:
        """Require a flush of everything below `end_offset`, the log end offset. The next one is due `flush.messages` records later."""
        self.due_offset = end_offset
        self._request_after(end_offset)

    def give_up(self, plan: FlushPlan) -> None:
        """Forget a plan that will not run. The recovery point stays."""
        if plan in self.plans:
            self.plans.remove(plan)

    def advance(self, offset: int) -> None:
        """Raise the recovery point to `offset`: everything below is on the disk."""
        if offset > self.recovery_point:
            self.recovery_point = offset
            self._request_after(offset)

    def truncate(self, end_offset: int) -> None:
        """Lower all offsets to the new end of the log. No flush is due for the records that replace the truncated ones."""
        self.recovery_point = min(self.recovery_point, end_offset)
        self.due_offset = min(self.due_offset, end_offset)
        for plan in self.plans:
            plan.recovery_point = min(plan.recovery_point, end_offset)
        self._request_after(self.recovery_point)

    def _request_after(self, offset: int) -> None:
        # `flush.messages` may be as large as 64 bits allow.
        self.request_offset = min(offset, NEVER - self._flush_messages) + self._flush_messages - 1
