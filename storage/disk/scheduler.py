"""Declares the port by which the log schedules work."""

from collections.abc import Callable
from typing import Protocol


class Scheduler(Protocol):
    """Background work of the broker; tests run it explicitly."""

    def schedule_once(self, name: str, action: Callable[[], None], delay_ms: int) -> None:
        """Runs `action` once after `delay_ms`. It blocks on the disk and accesses no state of the log, so any thread
        may run it."""
