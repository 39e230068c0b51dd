"""Tracks how much of a log is on the disk, and when its next flush is due.

Owned by `PartitionLog`, and called only on the event loop. `flush` prepares and runs the flushes; `ottla.storage.upkeep.flusher` decides
when.

Invariants: the recovery point, the due offset and the recovery points of the plans are not beyond the log end offset, because a truncation
lowers all of them. Only a truncation moves the recovery point back.
"""

from ottla.storage.log.flush import FlushPlan
from ottla.storage.segment.limits import NEVER
from ottla.storage.segment.log_settings import LogSettings


class FlushProgress:
    """The flushes of one log: what is done, in progress and due."""

    __slots__ = ("_flush_messages", "due_offset", "plans", "recovery_point", "request_offset")

    def __init__(self, recovery_point: int, settings: LogSettings) -> None:
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
        self.use_settings(settings)

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

    def begin(self, plan: FlushPlan) -> None:
        """Note that a flush is in progress."""
        self.plans.append(plan)

    def finish(self, plan: FlushPlan) -> None:
        """Move the recovery point after a plan has run, but not beyond a truncation that happened meanwhile."""
        self.give_up(plan)
        self.advance(plan.recovery_point)

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
