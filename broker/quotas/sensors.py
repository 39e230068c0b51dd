"""Measures the usage of the clients that share a quota, and the time for which they have to wait. Kafka's Rate, Sensor and QuotaUtils.

`ClientQuotas` makes a `Sensor` for each resource and group of clients. The `Throttle` of each connection records on it. Times are
monotonic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ottla.broker.quotas.java_numbers import java_int, java_round
from ottla.replication.ports.windowed_sum import WindowedSum

if TYPE_CHECKING:
    from ottla.broker.quotas.quota_bounds import Tags


class Rate:
    """The rate per second over `samples` windows of `window_ms`. All windows but the current one count in full, even before they have
    passed."""

    __slots__ = ("_full_windows", "_full_windows_ms", "_sum", "_window_ms")

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        self._window_ms = window_ms
        self._full_windows = samples - 1
        self._full_windows_ms = (samples - 1) * window_ms
        self._sum = WindowedSum(samples, window_ms, now_ms)

    def add(self, amount: float, now_ms: int) -> None:
        """Count an amount; a negative one subtracts an amount that was counted before."""
        self._sum.add(amount, now_ms)

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        self._sum.pass_time(now_ms)
        return self._sum.total / (self._elapsed_ms(now_ms) / 1000.0)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time over which the sum was counted."""
        elapsed_ms = now_ms - self._sum.oldest_ms
        if elapsed_ms < self._full_windows_ms:
            elapsed_ms += (self._full_windows - elapsed_ms // self._window_ms) * self._window_ms
        return max(elapsed_ms, 1)


@final
class Sensor(Rate):
    """The rate of clients that share a quota. `bound` is the quota per second; `throttle_time` averages the times that clients had to
    wait."""

    __slots__ = ("_max_throttle_ms", "bound", "last_ms", "tags", "throttle_time")

    def __init__(self, tags: Tags, samples: int, window_ms: int, max_throttle_ms: int, throttle_time: Average, now_ms: int) -> None:
        Rate.__init__(self, samples, window_ms, now_ms)
        self.tags = tags
        self.bound = 0.0
        self.last_ms = now_ms
        self.throttle_time = throttle_time
        self._max_throttle_ms = max_throttle_ms

    def record(self, amount: float, now_ms: int) -> int:
        """Count an amount. Returns the time until the rate is within the quota again, ms; 0 if it is."""
        self.last_ms = now_ms
        counted = self._sum
        counted.add(amount, now_ms)
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = counted.total / (elapsed_ms / 1000.0)
        if rate <= self.bound:
            return 0
        return self._throttle_time_ms(rate, elapsed_ms)

    def _throttle_time_ms(self, rate: float, elapsed_ms: int) -> int:
        # As in Apache Kafka, a time beyond the integers of Java is narrowed to 32 bits. So a quota of 0 bytes has no effect.
        bound = self.bound
        over = (rate - bound) / bound if bound else float("inf")
        return max(java_int(min(java_round(over * elapsed_ms), self._max_throttle_ms)), 0)

    def most_at_once(self) -> float:
        """The largest amount that is within the quota if nothing else was counted before."""
        return self.bound * self._full_windows_ms / 1000


@final
class Average:
    """The average of recent values: Kafka's Avg."""

    __slots__ = ("_count", "_sum")

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        self._sum = WindowedSum(samples, window_ms, now_ms)
        self._count = WindowedSum(samples, window_ms, now_ms)

    def add(self, value: float, now_ms: int) -> None:
        """Count a value."""
        self._sum.add(value, now_ms)
        self._count.add(1, now_ms)

    def average(self, now_ms: int) -> float:
        """The average; 0 without values."""
        self._sum.pass_time(now_ms)
        self._count.pass_time(now_ms)
        return self._sum.total / max(self._count.total, 1)
