"""Declares the port for timers and threads. `broker` implements it with the event loop and threads; tests run the work explicitly."""

from collections.abc import Callable
from typing import Protocol

from ottla.storage.disk.scheduler import Scheduler


class Background(Scheduler, Protocol):
    """Timers on the event loop, and threads for blocking work."""

    @property
    def is_closed(self) -> bool:
        """Whether the broker stops: long work that has paused ends, because a thread closes the logs."""

    def schedule(self, name: str, delay_ms: int, period_ms: int, callback: Callable[[], None]) -> None:
        """Calls `callback` on the event loop after `delay_ms`, and then every `period_ms`; once only if that is not positive."""

    def submit(self, name: str, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        """Runs `work`, which blocks, in a thread; afterwards calls `then` on the event loop with the exception it
        raised, or None."""
