"""Keeps latency histograms with logarithmic buckets, as loadgen/loadgen.c counts them; merges runs and computes percentiles.

128 buckets per power of two: a value is known to better than 0.8 %. A bucket stands for its upper end, so a percentile is never too good.
"""

from collections import Counter
from collections.abc import Iterable

SUB_BITS = 7


def bucket_of(value: int) -> int:
    """The bucket of a value >= 0."""
    if value < 1 << SUB_BITS:
        return value
    shift = value.bit_length() - 1 - SUB_BITS
    return (shift << SUB_BITS) + (value >> shift)


def highest_value_of(bucket: int) -> int:
    """The largest value that falls into this bucket."""
    if bucket < 1 << SUB_BITS:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    return ((bucket - (shift << SUB_BITS) + 1) << shift) - 1


class Histogram:
    """Counts per bucket, and the exact maximum."""

    def __init__(self, buckets: Iterable[tuple[int, int]] = (), maximum: int = 0) -> None:
        self._counts: Counter[int] = Counter()
        for bucket, count in buckets:
            self._counts[bucket] += count
        self.maximum = maximum

    @property
    def count(self) -> int:
        return self._counts.total()

    def record(self, value: int) -> None:
        self._counts[bucket_of(value)] += 1
        self.maximum = max(self.maximum, value)

    def merged(self, other: "Histogram") -> "Histogram":
        """The sum of both."""
        return Histogram([*self._counts.items(), *other._counts.items()], max(self.maximum, other.maximum))

    def percentile(self, percent: float) -> int:
        """The value that `percent` of all values do not exceed; 0 when there are none."""
        rank, seen = self.count * percent / 100, 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return min(highest_value_of(bucket), self.maximum)
        return self.maximum
