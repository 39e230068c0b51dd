"""Keeps the load times of partitions, within the window over which Apache Kafka averages them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_SECONDS: Final = 60.0
"""`metrics.num.samples` times `metrics.sample.window.ms`."""


class LoadTimes:
    """See the module. A broker loads few partitions within the window, one time each."""

    __slots__ = ("_monotonic", "_times")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._times: deque[tuple[float, float]] = deque()

    def add(self, seconds: float) -> None:
        """A partition was loaded within this time."""
        self._times.append((self._monotonic(), seconds))
        self._forget()

    def recent(self) -> list[float]:
        """The times of the window, seconds."""
        self._forget()
        return [seconds for _, seconds in self._times]

    def _forget(self) -> None:
        oldest = self._monotonic() - WINDOW_SECONDS
        while self._times and self._times[0][0] < oldest:
            self._times.popleft()
