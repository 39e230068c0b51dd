"""Keeps the last samples of many series. The memory is bounded by the numbers of samples and of series."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Final

MAX_SAMPLES: Final = 360
"""Samples of a series; one hour of samples that are ten seconds apart."""
MAX_SERIES: Final = 2000
"""Series of a cluster. Further ones are left out, until others have no sample left."""


class Ring:
    """Samples that were taken at the same times. A series without a value at some time has a gap there."""

    def __init__(self) -> None:
        self._times_ms: list[int] = []
        self._series: dict[str, array[float]] = {}

    def add(self, time_ms: int, values: Mapping[str, float]) -> None:
        """Add the values of a time to their series; the oldest sample of each goes when there are too many."""
        count = len(self._times_ms)
        self._times_ms.append(time_ms)
        for name, value in values.items():
            series = self._series.get(name)
            if series is None:
                if len(self._series) >= MAX_SERIES:
                    continue
                series = self._series[name] = array("d", [math.nan]) * count
            series.append(value)
        for name, series in list(self._series.items()):
            if len(series) == count:
                series.append(math.nan)
            if count == MAX_SAMPLES:
                del series[0]
            if all(map(math.isnan, series)):
                del self._series[name]
        if count == MAX_SAMPLES:
            del self._times_ms[0]

    def values(self, name: str) -> list[float | None]:
        """The samples of a series, oldest first; None in a gap."""
        series = self._series.get(name)
        if series is None:
            return [None] * len(self._times_ms)
        return [None if math.isnan(value) else value for value in series]

    @property
    def times_ms(self) -> list[int]:
        """The time of each sample, milliseconds since 1970."""
        return list(self._times_ms)
