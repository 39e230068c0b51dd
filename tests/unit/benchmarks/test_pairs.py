"""Compares two sides whose windows are made up: in which order they run, and what a row says of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from benchmarks.loadgen.runner import LoadFailedError, Measured
from benchmarks.pairs import LOADS, Side, Window, measure, row
from benchmarks.report.histogram import Histogram
from benchmarks.turns.sizes import QUICK, Pace


def a_window(responses: int, cpu_s: float, *latencies_ms: int) -> Measured:
    latencies = Histogram()
    for latency_ms in latencies_ms:
        latencies.record(latency_ms * 1_000_000)
    return Measured(responses, responses, 1.0, 0, 0, latencies, 0.0, cpu_s)


class Bench:
    """Two sides. `ran` has the sides of the windows in their order, `cleared` how often topics were removed."""

    def __init__(self, run: Callable[[int], Measured]) -> None:
        self.ran: list[int] = []
        self.cleared = 0
        self.sides = [Side(partial(self._prepare, at, run), self._clear) for at in range(2)]

    def _prepare(self, at: int, run: Callable[[int], Measured], _: str) -> Window:
        def window(_: Pace) -> Measured:
            self.ran.append(at)
            return run(at)

        return window

    def _clear(self) -> None:
        self.cleared += 1


def test_the_sides_take_turns_in_being_the_first_of_a_pair() -> None:
    bench = Bench(lambda at: a_window(10 + at, 1.0, 1))
    pairs = measure(bench.sides, "txn-ten", QUICK.pace, 3)
    assert bench.ran == [0, 1, 1, 0, 0, 1]
    assert [(first.responses, second.responses) for first, second in pairs] == [(10, 11)] * 3
    assert bench.cleared == 2


def test_topics_of_a_load_that_fails_are_removed() -> None:
    def fail(_: int) -> Measured:
        raise LoadFailedError("refused")

    bench = Bench(fail)
    with pytest.raises(LoadFailedError, match="refused"):
        measure(bench.sides, "txn-ten", QUICK.pace, 3)
    assert bench.cleared == 2


def test_a_row_has_medians_the_ratios_of_pairs_and_the_slowest_of_all_windows() -> None:
    slow = [a_window(100, 0.1, *[1] * 98, 7, 7), a_window(50, 0.1, *[1] * 49, 7), a_window(100, 0.1, *[1] * 100)]
    fast = [a_window(200, 0.1, *[1] * 200), a_window(200, 0.1, *[1] * 200), a_window(300, 0.1, *[1] * 300)]
    key, rate, other_rate, faster, cost, other_cost, cheaper, p99, other_p99, better = row("txn-ten", list(zip(slow, fast, strict=True)))
    assert (key, rate, other_rate) == ("txn-ten", "100", "200")
    assert faster.startswith("3.00 ×")
    assert (cost, other_cost) == ("1,000.0", "500.0")
    assert cheaper.startswith("3.00 ×")
    assert (float(p99), float(other_p99)) == (pytest.approx(7, rel=0.01), pytest.approx(1, rel=0.01))
    assert better == "7.00 ×"


def test_loads_of_transactions_run_on_one_broker_and_on_three() -> None:
    assert {"produce-10x10", "txn-ten", "txn-ten-rf3", "txn-copier", "txn-copier-rf3"} <= set(LOADS)
