"""MinFetchRate: what a broker says of how often its fetchers ask."""

from typing import Any, cast

import pytest

from ottla.broker.metrics.fetch_rates import TICK_SECONDS, FetchRates


def rates_of(*fetchers: Any) -> FetchRates:
    return FetchRates(lambda: cast("Any", fetchers))


def a_minute(rates: FetchRates, per_second: dict[int, int], fetchers: list[Any]) -> None:
    for _ in range(60):
        for number, requests in per_second.items():
            fetchers[number].requests += requests
        rates.on_second()


class Fetcher:
    def __init__(self) -> None:
        self.requests = 0


def test_without_fetchers_the_rate_is_zero() -> None:
    rates = rates_of()
    for _ in range(TICK_SECONDS):
        rates.on_second()
    assert rates.slowest == 0.0


def test_a_steady_rate_is_told_as_it_is_and_the_slowest_fetcher_counts() -> None:
    fetchers = [Fetcher(), Fetcher()]
    rates = rates_of(*fetchers)
    a_minute(rates, {0: 10, 1: 2}, fetchers)
    assert rates.slowest == pytest.approx(2)


def test_a_fetcher_that_falls_silent_goes_down_by_a_factor_of_e_in_a_minute() -> None:
    fetchers = [Fetcher()]
    rates = rates_of(*fetchers)
    a_minute(rates, {0: 10}, fetchers)
    a_minute(rates, {}, fetchers)
    assert rates.slowest == pytest.approx(10 / 2.718281828)


def test_a_fetcher_that_is_gone_no_longer_counts() -> None:
    fetchers = [Fetcher()]
    rates = rates_of(*fetchers)
    a_minute(rates, {0: 10}, fetchers)
    rates._fetchers = lambda: ()
    a_minute(rates, {}, fetchers)
    assert rates.slowest == 0.0
