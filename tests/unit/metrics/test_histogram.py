"""Histograms: every value has one bucket, quantiles are near the truth, old values are forgotten."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.metrics.histogram import BUCKETS, Histogram, bucket_of, middle_of

FRACTIONS = (0.5, 0.99, 0.999)


@given(st.integers(0, 2**40 - 1))
@settings(max_examples=300, deadline=None)
def test_the_middle_of_a_bucket_is_near_every_value_in_it(value: int) -> None:
    assert abs(middle_of(bucket_of(value)) - value) <= max(0.5, value / 16)


@given(st.integers(0, 2**41), st.integers(0, 2**41))
@settings(max_examples=300, deadline=None)
def test_a_larger_value_never_has_a_lower_bucket(one: int, other: int) -> None:
    assert bucket_of(min(one, other)) <= bucket_of(max(one, other)) < BUCKETS


def test_a_clock_that_went_back_counts_as_nothing() -> None:
    assert bucket_of(-5) == 0


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=200))
@settings(max_examples=100, deadline=None)
def test_quantiles_are_those_of_the_values(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    values.sort()
    for fraction, quantile in zip(FRACTIONS, histogram.look().quantiles(FRACTIONS), strict=True):
        rank = next(i for i in range(len(values)) if (i + 1) >= fraction * len(values))
        assert bucket_of(values[rank]) == bucket_of(round(quantile))


def test_a_weight_stands_for_so_many_values() -> None:
    histogram = Histogram()
    histogram.add(10, 99)
    histogram.add(1000)
    found = histogram.look()
    assert (found.count, found.total) == (100, 99 * 10 + 1000)
    assert found.quantiles((0.5, 0.99)) == [10.0, 10.0]


def test_nothing_has_quantiles_of_nought() -> None:
    assert Histogram().look().quantiles(FRACTIONS) == [0.0, 0.0, 0.0]


def test_quantiles_forget_after_two_windows_and_counts_never() -> None:
    histogram = Histogram()
    histogram.add(10)
    histogram.turn()
    assert histogram.look().quantiles((0.5,)) == [10.0]
    histogram.turn()
    found = histogram.look()
    assert found.quantiles((0.5,)) == [0.0]
    assert (found.count, found.total) == (1, 10)


def test_a_look_does_not_change_with_what_comes_later() -> None:
    histogram = Histogram()
    found = histogram.look()
    histogram.add(3)
    assert found.count == 0
    assert not any(found.counts)
