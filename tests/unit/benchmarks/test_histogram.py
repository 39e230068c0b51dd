"""The latency histogram: how exact its buckets are, percentiles, merging."""

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.report.histogram import Histogram, bucket_of, highest_value_of

LATENCIES = st.lists(st.integers(0, 2**40), min_size=1, max_size=200)


def a_histogram(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(st.integers(0, 2**50))
@settings(max_examples=300, deadline=None)
def test_the_upper_end_of_a_bucket_is_less_than_one_percent_above_any_of_its_values(value: int) -> None:
    highest = highest_value_of(bucket_of(value))

    assert value <= highest <= value * 1.008
    assert bucket_of(highest) == bucket_of(value)
    assert bucket_of(highest + 1) == bucket_of(value) + 1


@given(LATENCIES, st.sampled_from([0.1, 50, 90, 99, 99.9, 100]))
@settings(max_examples=100, deadline=None)
def test_a_percentile_is_the_value_of_that_rank_within_the_width_of_a_bucket(values: list[int], percent: float) -> None:
    exact = next(value for i, value in enumerate(sorted(values), 1) if i >= len(values) * percent / 100)

    assert exact <= a_histogram(values).percentile(percent) <= exact * 1.008


@given(LATENCIES, LATENCIES)
@settings(max_examples=50, deadline=None)
def test_two_histograms_merged_are_the_histogram_of_all_values(some: list[int], others: list[int]) -> None:
    merged, of_all = a_histogram(some).merged(a_histogram(others)), a_histogram(some + others)

    assert merged.count == of_all.count
    assert [merged.percentile(percent) for percent in range(101)] == [of_all.percentile(percent) for percent in range(101)]


def test_the_hundredth_percentile_is_the_exact_maximum() -> None:
    assert a_histogram([1, 1_000_003]).percentile(100) == 1_000_003


def test_a_histogram_without_values_has_zero_percentiles() -> None:
    assert Histogram().percentile(99) == 0
