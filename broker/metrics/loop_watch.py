"""How the event loop is doing: how late it wakes up, and which part of the time it works.

Everything of a broker that matters happens on this loop, so what it does not do, nobody does: Kafka's idle ratios of network and request
handler threads are both read from the processor time of the loop's thread here. A timer beats ten times a second while somebody may look.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.metrics.histogram import Histogram

BEAT_SECONDS: Final = 0.1
SECOND: Final = 10
"""Beats in a second."""
WINDOW_SECONDS: Final = 60


class LoopWatch:
    """See the module. `lag` is in microseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float], thread_time: Callable[[], float]) -> None:
        """`thread_time` is the processor time of the calling thread; both clocks are in seconds. That of uvloop only knows milliseconds."""
        self.lag = Histogram()
        self.on_second: list[Callable[[], None]] = []
        self.on_window: list[Callable[[], None]] = [self.lag.turn]
        """Told when the windows of the quantiles are to move on."""
        self._loop = loop
        self._monotonic = monotonic
        self._thread_time = thread_time
        self._samples: deque[tuple[float, float]] = deque(maxlen=WINDOW_SECONDS)
        self._beats = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to beat."""
        self._sample()
        self._arm()

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def busy_seconds(self) -> float:
        """The processor time that the loop has taken, as of the last second."""
        return self._samples[-1][1] if self._samples else 0.0

    @property
    def idle_ratio(self) -> float:
        """Which part of the last minute the loop did nothing; 1 before anything is known."""
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
        if self._beats % SECOND == 0:
            self._sample()
            for callback in self.on_second:
                callback()
        if self._beats % (SECOND * WINDOW_SECONDS) == 0:
            for callback in self.on_window:
                callback()
        self._arm()

    def _sample(self) -> None:
        self._samples.append((self._monotonic(), self._thread_time()))
