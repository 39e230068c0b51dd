"""How often something happened lately: over two windows, on a clock that the test turns."""

from math import isnan

import pytest

from ottla.broker.network.recent import WINDOW_SECONDS, Recent


def test_nothing_happened_yet() -> None:
    recent = Recent(100.0)
    assert recent.per_second(105.0) == 0
    assert isnan(recent.average(105.0))


def test_a_steady_rate_is_told_as_it_is() -> None:
    recent = Recent(0.0)
    for tenth in range(1_000):
        recent.add(tenth / 10)
    assert recent.per_second(100.0) == pytest.approx(10.0)
    assert recent.per_second(105.0) == pytest.approx(5.0)


def test_what_is_two_windows_old_is_forgotten() -> None:
    recent = Recent(0.0)
    recent.add(1.0, 40.0)
    assert recent.per_second(1.0) == pytest.approx(0.2, abs=0.11)
    assert recent.average(1.0) == 40.0
    assert recent.per_second(1.0 + 2 * WINDOW_SECONDS) == 0
    assert isnan(recent.average(1.0 + 2 * WINDOW_SECONDS))


def test_the_average_is_of_the_values_of_both_windows() -> None:
    recent = Recent(0.0)
    recent.add(1.0, 10.0)
    recent.add(WINDOW_SECONDS + 1, 20.0)
    assert recent.average(WINDOW_SECONDS + 2) == 15.0
