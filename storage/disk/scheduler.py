"""The port through which the log asks for something to be done later."""

from collections.abc import Callable
from typing import Protocol


class Scheduler(Protocol):
    """Background work of the broker; a test runs it by hand."""

    def schedule_once(self, name: str, action: Callable[[], None], delay_ms: int) -> None:
        """Runs `action` once after `delay_ms`. It blocks on the disk and touches no state of the log, so any thread may run it."""
