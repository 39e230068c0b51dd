"""Advances the time of a broker for its test: the time of day, durations and timers together.

Sessions, transaction timeouts, retention, quotas and tokens end as if the time had passed. The metadata store, idle connections and the
turns of the event loop keep the machine's time, so that no session of a broker ends and no client is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

MOST_SECONDS: Final = 10 * 365 * 86_400.0
"""The longest advance. Times in milliseconds stay far from the limits of their fields."""


class Timer:
    """A call that is due at a time of the broker's clock."""

    __slots__ = ("callback", "due", "handle", "number", "owner")

    def __init__(self, owner: AdvancedTime, due: float, number: int, callback: Callable[[], object]) -> None:
        self.owner = owner
        self.due = due
        self.number = number
        self.callback = callback
        self.handle: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        """Prevent the call."""
        self.owner.forget(self)

    def fire(self) -> None:
        """Call, unless it was cancelled."""
        if self.owner.forget(self):
            self.callback()


class AdvancedTime:
    """Time that a test has advanced, and the timers of the broker. Time only moves forward."""

    def __init__(self) -> None:
        self.advanced_s = 0.0
        """Time by which the broker's clocks are ahead of those of the machine, in seconds."""
        self._timers: dict[Timer, None] = {}
        self._count = 0

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call after `delay` seconds of the broker's time."""
        loop = asyncio.get_running_loop()
        self._count += 1
        timer = Timer(self, loop.time() + self.advanced_s + delay, self._count, callback)
        timer.handle = loop.call_later(delay, timer.fire)
        self._timers[timer] = None
        return timer

    def advance(self, seconds: float) -> None:
        """Let this time pass at once. Timers that become due are called in the order of their times. Raises ValueError."""
        if not 0 <= seconds <= MOST_SECONDS:
            raise ValueError(f"time advances by 0 to {MOST_SECONDS:.0f} seconds, not by {seconds:g}")
        loop = asyncio.get_running_loop()
        self.advanced_s += seconds
        now = loop.time() + self.advanced_s
        for timer in sorted(self._timers, key=lambda each: (each.due, each.number)):
            assert timer.handle is not None
            timer.handle.cancel()
            timer.handle = loop.call_later(max(timer.due - now, 0.0), timer.fire)

    def forget(self, timer: Timer) -> bool:
        """Drop a timer. Returns whether it was still waiting."""
        if timer.handle is not None:
            timer.handle.cancel()
        return self._timers.pop(timer, timer) is None
