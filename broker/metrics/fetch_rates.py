"""Measures the request rate of each fetcher: Kafka's MinFetchRate, an exponentially weighted average of the last
minute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.replication.follower.fetcher import Fetcher

TICK_SECONDS: Final = 5
_NEW: Final = 1 - math.exp(-TICK_SECONDS / 60)


class FetchRates:
    """Reads the fetchers' counts every five seconds, so that fetching itself costs nothing."""

    def __init__(self, fetchers: Callable[[], Iterable[Fetcher]]) -> None:
        self._fetchers = fetchers
        self._seconds = 0
        self._rates: dict[Fetcher, tuple[int, float]] = {}
        """Number of requests at the last read, and requests per second."""

    def on_second(self) -> None:
        """Called every second."""
        self._seconds += 1
        if self._seconds % TICK_SECONDS == 0:
            self._rates = {fetcher: self._tick(fetcher) for fetcher in self._fetchers()}

    def _tick(self, fetcher: Fetcher) -> tuple[int, float]:
        before = self._rates.get(fetcher)
        requests = fetcher.requests
        if before is None:
            return requests, requests / TICK_SECONDS
        return requests, before[1] + _NEW * ((requests - before[0]) / TICK_SECONDS - before[1])

    @property
    def slowest(self) -> float:
        """Requests per second of the slowest fetcher; 0 without fetchers."""
        return min((rate for _, rate in self._rates.values()), default=0.0)
