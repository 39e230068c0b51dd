"""Sums amounts over the last windows of time. Kafka's SampledStat with WindowedSum; rates of quotas are made of it.

Time is cut into windows, and every window with an amount has a sample. A sample expires when its last amount is older than all windows
together. One more sample than windows is kept, because one may overlap the start of the period. An expired sample is reset.
"""

from __future__ import annotations

from collections import deque
from typing import final


@final
class Sample:
    """A completed window with amounts."""

    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, start_ms: int, last_ms: int, value: float) -> None:
        self.start_ms = start_ms
        self.last_ms = last_ms
        self.value = value


@final
class WindowedSum:
    """The sum over `samples` windows of `window_ms`. `total` and `oldest_ms` hold for the time of the last call."""

    __slots__ = ("_due_ms", "_last_ms", "_older", "_period_ms", "_start_ms", "_value", "_window_ms", "oldest_ms", "total")

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        self.total = 0.0
        self.oldest_ms = now_ms
        """The start of the oldest sample."""
        self._window_ms = window_ms
        self._period_ms = samples * window_ms
        self._older: deque[Sample] = deque(maxlen=samples)
        # The sample of the current window.
        self._start_ms = now_ms
        self._last_ms = now_ms
        self._value = 0.0
        self._due_ms = now_ms + window_ms
        """The time at which the current window is complete or a sample expires. Until then an amount is one addition."""

    def add(self, amount: float, now_ms: int) -> None:
        """Add an amount, which may be negative, at a time that is not before that of an earlier call."""
        if now_ms >= self._due_ms:
            if now_ms - self._start_ms >= self._window_ms:
                self._older.append(Sample(self._start_ms, self._last_ms, self._value))
                self._start_ms = now_ms
                self._value = 0.0
            self._last_ms = now_ms
            self._expire(now_ms)
        self._value += amount
        self._last_ms = now_ms
        self.total += amount

    def pass_time(self, now_ms: int) -> None:
        """Drop expired amounts."""
        if now_ms >= self._due_ms:
            self._expire(now_ms)

    def _expire(self, now_ms: int) -> None:
        period_ms = self._period_ms
        if now_ms - self._last_ms >= period_ms:
            self._start_ms = self._last_ms = now_ms
            self._value = 0.0
        total = self._value
        oldest_ms = self._start_ms
        due_ms = oldest_ms + self._window_ms
        for sample in self._older:
            if now_ms - sample.last_ms >= period_ms:
                sample.start_ms = sample.last_ms = now_ms
                sample.value = 0.0
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
            due_ms = min(due_ms, sample.last_ms + period_ms)
        self.total = total
        self.oldest_ms = oldest_ms
        self._due_ms = due_ms
