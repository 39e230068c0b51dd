"""Counts recent events and sums their amounts, for metrics of rare events. Time is an argument, in seconds.

There are two windows: the current one and the one before it. The earlier one counts for the part that lies within a window's length.
"""

from __future__ import annotations

from math import nan
from typing import Final

WINDOW_SECONDS: Final = 10.0


class Recent:
    """Number and sum of recent events."""

    __slots__ = ("_before", "_count", "_since", "_sum", "_sum_before")

    def __init__(self, now: float) -> None:
        self._since = now
        self._count = 0
        self._sum = 0.0
        self._before = 0
        self._sum_before = 0.0

    def add(self, now: float, value: float = 0.0) -> None:
        """Count an event."""
        self._turn(now)
        self._count += 1
        self._sum += value

    def per_second(self, now: float) -> float:
        """Events per second."""
        self._turn(now)
        return (self._count + self._before * (1 - (now - self._since) / WINDOW_SECONDS)) / WINDOW_SECONDS

    def average(self, now: float) -> float:
        """The average value; NaN without events, as in Apache Kafka."""
        self._turn(now)
        count = self._count + self._before
        return (self._sum + self._sum_before) / count if count else nan

    def _turn(self, now: float) -> None:
        age = now - self._since
        if age < WINDOW_SECONDS:
            return
        is_next = age < 2 * WINDOW_SECONDS
        self._before, self._sum_before = (self._count, self._sum) if is_next else (0, 0.0)
        self._since = self._since + WINDOW_SECONDS if is_next else now
        self._count = 0
        self._sum = 0.0
