"""What the host withheld stands beside the stalls of the same time."""

from collections.abc import Sequence

import pytest

from benchmarks.brokers import process
from benchmarks.brokers.withheld import Stall, Withheld
from benchmarks.loadgen.runner import Interval
from benchmarks.report.histogram import Histogram, bucket_of
from benchmarks.turns.turn import Course


def an_interval(at_s: float, longest_ms: float | None, gap_ms: float = 0.0) -> Interval:
    """Without answers when there is no longest latency."""
    if longest_ms is None:
        return Interval(at_s, Histogram(), int(gap_ms * 1e6))
    longest_ns = int(longest_ms * 1e6)
    return Interval(at_s, Histogram([(bucket_of(longest_ns), 10)], longest_ns), int(gap_ms * 1e6))


@pytest.fixture
def stolen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the host has withheld, to be read one after the other."""
    readings: list[float] = []
    monkeypatch.setattr(process, "stolen_s", lambda: readings.pop(0))
    return readings


def noted(stolen: list[float], readings: Sequence[float], intervals: Sequence[Interval]) -> tuple[Withheld, dict[str, Course]]:
    stolen += readings
    courses: dict[str, Course] = {}
    withheld = Withheld(courses, "steady-")
    for interval in intervals:
        withheld.note(interval)
    return withheld, courses


def test_every_interval_has_its_longest_latency_and_what_was_withheld(stolen: list[float]) -> None:
    withheld, courses = noted(stolen, [1.0, 1.02, 1.02], [an_interval(0.5, 31), an_interval(1.0, 1)])

    assert [at for at, _ in courses["steady-longest"]] == [0.5, 1.0]
    assert [round(value) for _, value in courses["steady-stolen"]] == [20, 0]
    assert withheld.stolen_s == pytest.approx(0.02)


def test_what_was_withheld_while_nothing_was_answered_belongs_to_the_stall(stolen: list[float]) -> None:
    withheld, _ = noted(stolen, [0.0, 0.3, 0.31], [an_interval(0.5, None, gap_ms=300), an_interval(1.0, 450)])

    (stall,) = withheld.stalls(2)
    assert stall == Stall(1.0, 450, pytest.approx(310), 300)


def test_stalls_are_told_the_longest_first(stolen: list[float]) -> None:
    intervals = [an_interval(1, 3), an_interval(2, 1), an_interval(3, 9)]

    withheld, _ = noted(stolen, [0.0] * 4, intervals)

    assert [stall.at_s for stall in withheld.stalls(2)] == [3, 1]


def test_undisturbed_latency_is_that_of_intervals_in_which_nothing_was_withheld(stolen: list[float]) -> None:
    withheld, _ = noted(stolen, [0.0, 0.02, 0.02], [an_interval(1, 40), an_interval(2, 1)])

    assert withheld.undisturbed_ns.maximum == 1_000_000
