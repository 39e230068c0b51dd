"""Defines the lines of a result: the number of the turns that each shows, its target, and whether that is reached. The parts declare lines.

A ratio is always "how many times better than the reference": measured rates are divided by the reference's, times and memory the other
way round. A target is either such a ratio or an absolute bound.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from benchmarks.report.histogram import Histogram
from benchmarks.turns.turn import Turn

Value = Callable[[Sequence[Turn]], float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One row. `ratio_at_least`, `at_least` or `at_most` is the target, if it has one; `at_most` implies that less is better.

    A value that is best near zero, such as a growth, is not `is_compared`, since a ratio would mean nothing.
    """

    key: str
    title: str
    unit: str
    value: Value
    digits: int = 0
    less_is_better: bool = False
    ratio_at_least: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    is_compared: bool = True

    def ratio(self, ours: float | None, reference: float | None) -> float | None:
        """The factor by which ours is better; None when either number is missing or zero, or the line is not compared."""
        if not ours or not reference or not self.is_compared:
            return None
        return reference / ours if self.less_is_better else ours / reference

    def target(self) -> str:
        if self.ratio_at_least is not None:
            return f"≥ {self.ratio_at_least:g} ×"
        if self.at_least is not None:
            return f"≥ {self.at_least:g} {self.unit}"
        return "" if self.at_most is None else f"≤ {self.at_most:g} {self.unit}"

    def reached(self, ours: float | None, reference: float | None) -> bool | None:
        """Whether the target is reached; None without a target or numbers."""
        if self.at_most is not None:
            return None if ours is None else ours <= self.at_most
        if self.at_least is not None:
            return None if ours is None else ours >= self.at_least
        ratio = self.ratio(ours, reference)
        return None if ratio is None or self.ratio_at_least is None else ratio >= self.ratio_at_least


def rate_of(key: str) -> Value:
    """Requests per second: the median of the turns."""
    return lambda turns: _median([turn.loads[key].per_second for turn in turns if key in turn.loads])


def latency_of(key: str, percent: float) -> Value:
    """The latency percentile over the requests of all turns together, ms."""

    def value(turns: Sequence[Turn]) -> float | None:
        merged = reduce(Histogram.merged, [turn.loads[key].latency_ns for turn in turns if key in turn.loads], Histogram())
        return merged.percentile(percent) / 1e6 if merged.count else None

    return value


def cpu_of(key: str) -> Value:
    """Microseconds of the broker's processor time per request, over all turns."""

    def value(turns: Sequence[Turn]) -> float | None:
        loads = [turn.loads[key] for turn in turns if key in turn.loads]
        answered = sum(load.answered for load in loads)
        return sum(load.broker_cpu_s for load in loads) / answered * 1e6 if answered else None

    return value


def cpu_per_gb_of(key: str) -> Value:
    """The broker's processor seconds per 10^9 bytes in the direction of the records, over all turns."""

    def value(turns: Sequence[Turn]) -> float | None:
        loads = [turn.loads[key] for turn in turns if key in turn.loads]
        moved = sum(max(load.bytes_sent, load.bytes_received) for load in loads)
        return sum(load.broker_cpu_s for load in loads) / moved * 1e9 if moved else None

    return value


def generator_load_of(key: str) -> Value:
    """The generator's share of its core, 0 to 1. Near 1, the generator was the limit, not the broker (unless it polls)."""
    return lambda turns: _median([turn.loads[key].generator_cpu_s / turn.loads[key].window_s for turn in turns if key in turn.loads])


def percent_name(percent: float) -> str:
    """The name of a percentile in a title."""
    return "longest" if percent == 100 else f"p{percent:g}"


def number(name: str, divisor: float = 1.0) -> Value:
    """The median of a single number of every turn."""
    return lambda turns: _median([turn.numbers[name] / divisor for turn in turns if name in turn.numbers])


def _median(numbers: Sequence[float]) -> float | None:
    return statistics.median(numbers) if numbers else None
