"""Measures the event loop: the delay of its timers, and the share of time in which it works.

All work of a broker happens on this loop. So Kafka's idle ratios of network and request handler threads are both
derived from the processor time of the loop's thread. A timer fires ten times a second while metrics are exposed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.broker.metrics.histogram import Histogram

BEAT_SECONDS: Final = 0.1
SECOND: Final = 10
"""Beats per second."""
WINDOW_SECONDS: Final = 60


class LoopWatch:
    """See the module. `lag` is in microseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float], thread_time: Callable[[], float]) -> None:
        """`thread_time` is the processor time of the calling thread; both clocks are in seconds. uvloop's own clock has
        a resolution of milliseconds."""
        self.lag = Histogram()
        self.on_second: list[Callable[[], None]] = []
        self.on_window: list[Callable[[], None]] = [self.lag.turn]
        """Called when the windows of the quantiles end."""
        self._loop = loop
        self._monotonic = monotonic
        self._thread_time = thread_time
        self._samples: deque[tuple[float, float]] = deque(maxlen=WINDOW_SECONDS)
        self._beats = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer."""
        self._sample()
        self._arm()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def busy_seconds(self) -> float:
        """Processor time that the loop has used, as of the last second."""
        return self._samples[-1][1] if self._samples else 0.0

    @property
    def idle_ratio(self) -> float:
        """Share of the last minute in which the loop was idle; 1 before it is known."""
        if len(self._samples) < 2:
            return 1.0
        (began, busy_before), (now, busy) = self._samples[0], self._samples[-1]
        return min(1.0, max(0.0, 1.0 - (busy - busy_before) / (now - began)))

    def _arm(self) -> None:
        self._due = self._monotonic() + BEAT_SECONDS
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        self.lag.add(max(0, int((self._monotonic() - self._due) * 1e6)))
        self._beats += 1
        try:
            self._call_back()
        finally:
            self._arm()  # an error of a callback must not end the beats

    def _call_back(self) -> None:
        if self._beats % SECOND == 0:
            self._sample()
            for callback in self.on_second:
                callback()
        if self._beats % (SECOND * WINDOW_SECONDS) == 0:
            for callback in self.on_window:
                callback()

    def _sample(self) -> None:
        self._samples.append((self._monotonic(), self._thread_time()))
