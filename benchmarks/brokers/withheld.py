"""Tracks, beside the latency of a load, the time that the machine's host withheld: the host may be the cause of a stall."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from benchmarks.brokers import process
from benchmarks.loadgen.runner import Interval
from benchmarks.report.histogram import Histogram
from benchmarks.turns.turn import Course


class Stall(NamedTuple):
    """An interval with a long latency. Of all cores together the host withheld `stolen_ms`; the generator did not run for `gap_ms`."""

    at_s: float
    longest_ms: float
    stolen_ms: float
    gap_ms: float

    def __str__(self) -> str:
        beside = f"host withheld {self.stolen_ms:.0f} ms, generator stood {self.gap_ms:.1f} ms"
        return f"{self.longest_ms:.1f} ms at {self.at_s:.1f} s ({beside})"


class Withheld:
    """Notes every interval of a load in the courses `longest` and `stolen`, in ms, whose names begin with `prefix`.

    Time withheld while no answer came belongs to the next interval with answers.
    """

    def __init__(self, courses: dict[str, Course], prefix: str = "") -> None:
        self._longest: Course = []
        self._stolen: Course = []
        courses[f"{prefix}longest"], courses[f"{prefix}stolen"] = self._longest, self._stolen
        self._stolen_s = 0.0
        self._before_s = process.stolen_s()
        self._unanswered_ms = self._unanswered_gap_ms = 0.0
        self._intervals: list[Stall] = []
        self._undisturbed: list[Histogram] = []

    def resume(self) -> None:
        """Call at the beginning of a window: what the host withheld since the last one does not count."""
        self._before_s = process.stolen_s()

    def note(self, interval: Interval) -> None:
        """Call at the end of every interval."""
        now_s = process.stolen_s()
        stolen_ms, self._before_s = (now_s - self._before_s) * 1e3, now_s
        self._stolen_s += stolen_ms / 1e3
        self._stolen.append((interval.at_s, stolen_ms))
        self._unanswered_ms += stolen_ms
        self._unanswered_gap_ms = max(self._unanswered_gap_ms, interval.gap_ns / 1e6)
        if not interval.latency_ns.count:
            return  # a stall; what comes after it says how long it was
        longest_ms = interval.latency_ns.maximum / 1e6
        self._longest.append((interval.at_s, longest_ms))
        self._intervals.append(Stall(interval.at_s, longest_ms, self._unanswered_ms, self._unanswered_gap_ms))
        if not self._unanswered_ms:
            self._undisturbed.append(interval.latency_ns)
        self._unanswered_ms = self._unanswered_gap_ms = 0.0

    @property
    def stolen_s(self) -> float:
        """Seconds that the host has withheld in the windows."""
        return self._stolen_s

    @property
    def undisturbed_ns(self) -> Histogram:
        """Latency in the intervals in which the host withheld nothing."""
        return reduce(Histogram.merged, self._undisturbed, Histogram())

    def stalls(self, above_ms: float) -> Sequence[Stall]:
        """Intervals with a latency above that, the longest first."""
        return sorted((each for each in self._intervals if each.longest_ms > above_ms), key=lambda each: -each.longest_ms)
