"""Provides a clock with one-shot timers that the test advances by hand."""

from collections.abc import Callable


class FakeTime:
    """Stands in for the clock and `call_later` of a loop; `armed` counts the timers that were asked for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []
        self.armed = 0

    def clock(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> "Timer":
        self.armed += 1
        timer = Timer(self.now + delay, callback)
        self.timers.append(timer)
        return timer

    def advance(self, ms: float) -> None:
        """Time passes; timers fire at their time."""
        end = self.now + ms / 1000
        while True:
            self.timers = [timer for timer in self.timers if not timer.cancelled]
            due = [timer for timer in self.timers if timer.at <= end]
            if not due:
                break
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.now = max(self.now, timer.at)
            timer.callback()
        self.now = end


class Timer:
    def __init__(self, at: float, callback: Callable[[], object]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
