"""Rates and throttle times are those of Apache Kafka: the figures are those that its own rules give."""

import random
from collections.abc import Callable

import pytest

from ottla.broker.quotas.java_numbers import java_int, java_round
from ottla.broker.quotas.quota_bounds import Tags
from ottla.broker.quotas.sensors import Average, Rate, Sensor
from ottla.replication.ports.windowed_sum import WindowedSum
from tests.support.examples import number_of

NO_LIMIT = 2**63 - 1


def a_sensor(bound: float, max_throttle_ms: int = NO_LIMIT) -> Sensor:
    sensor = Sensor(Tags("alice", "app"), 11, 1000, max_throttle_ms, Average(2, 30_000, 0), 0)
    sensor.bound = bound
    return sensor


def test_a_burst_has_to_wait_until_the_rate_is_within_the_quota() -> None:
    sensor = a_sensor(500)
    for second in range(10):
        assert sensor.record(400, second * 1000) == 0
    # 6300 bytes in 10.5 seconds are 600 a second: (600 - 500) / 500 * 10.5 s.
    assert sensor.record(2300, 10_500) == 2100
    for second in range(10):
        sensor.record(400, 12_600 + second * 1000)
    assert sensor.record(0, 22_600) == 0


def test_request_time_waits_at_most_a_window() -> None:
    sensor = a_sensor(1, max_throttle_ms=1000)
    for second in range(10):
        assert sensor.record(0.4, second * 1000) == 0
    assert sensor.record(6.71, 10_500) == 210
    assert sensor.record(50, 10_500) == 1000


def test_the_first_amounts_count_over_ten_whole_windows() -> None:
    rate = Rate(11, 1000, 0)
    rate.add(1000, 0)
    assert rate.per_second(0) == 100
    assert rate.per_second(500) == pytest.approx(1000 / 10.5)
    assert rate.per_second(999) == pytest.approx(1000 / 10.999)
    assert rate.per_second(1000) == 100  # a window more is complete, one less is assumed


def test_an_amount_is_forgotten_after_all_windows() -> None:
    rate = Rate(11, 1000, 0)
    rate.add(1000, 0)
    assert rate.per_second(10_999) == pytest.approx(1000 / 10.999)
    assert rate.per_second(11_000) == 0


def test_a_single_window_counts_since_its_start() -> None:
    rate = Rate(1, 1000, 0)
    rate.add(10, 0)
    assert rate.per_second(0) == 10_000  # at least a millisecond has passed
    assert rate.per_second(500) == 20


def test_what_is_taken_back_does_not_count() -> None:
    sensor = a_sensor(100)
    assert sensor.record(5000, 0) == 40_000
    sensor.add(-5000, 0)
    assert sensor.record(1000, 100) == 0


def test_a_longer_idle_time_leaves_nothing() -> None:
    sensor = a_sensor(100)
    assert sensor.record(5000, 0) > 0
    assert sensor.record(900, 3_600_000) == 0


def test_a_quota_of_zero_bytes_limits_nobody() -> None:
    # The time is infinite, and Java narrows it to -1.
    assert a_sensor(0).record(1000, 0) == 0
    assert a_sensor(0, max_throttle_ms=1000).record(1000, 0) == 1000


def test_a_negative_quota_limits_nobody() -> None:
    assert a_sensor(-5).record(1000, 0) == 0


def test_a_quota_that_is_not_a_number_limits_nobody() -> None:
    assert a_sensor(float("nan"), max_throttle_ms=1000).record(1000, 0) == 0


def test_no_more_is_let_through_at_once_than_ten_windows_hold() -> None:
    assert a_sensor(1000).most_at_once() == 10_000
    assert a_sensor(1000).record(10_000, 0) == 0
    assert a_sensor(1000).record(10_001, 0) > 0


@pytest.mark.parametrize(("value", "rounded"), [(0.4, 0), (0.5, 1), (1.5, 2), (-0.5, 0), (-1.6, -2), (1e30, 2**63 - 1), (float("nan"), 0)])
def test_java_rounds_halves_up(value: float, rounded: int) -> None:
    assert java_round(value) == rounded


@pytest.mark.parametrize(("value", "narrowed"), [(5, 5), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (2**32 + 7, 7), (2**63 - 1, -1)])
def test_java_keeps_the_lower_bits(value: int, narrowed: int) -> None:
    assert java_int(value) == narrowed


def test_an_average_is_that_of_the_last_windows() -> None:
    average = Average(2, 30_000, 0)
    assert average.average(0) == 0
    average.add(100, 0)
    average.add(300, 1000)
    assert average.average(59_000) == 200
    assert average.average(61_000) == 0


class PlainSamples:
    """The samples of Apache Kafka, kept and asked one by one."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.size, self.window_ms = samples, window_ms
        self.ring: list[list[float]] = [[0, 0, 0.0]]  # start, last event, value
        self.current = 0

    def add(self, amount: float, now_ms: int) -> None:
        if now_ms - self.ring[self.current][0] >= self.window_ms:
            self.current = (self.current + 1) % (self.size + 1)
            if self.current == len(self.ring):
                self.ring.append([now_ms, now_ms, 0.0])
            self.ring[self.current] = [now_ms, now_ms, 0.0]
        self.ring[self.current][1] = now_ms
        self.ring[self.current][2] += amount
        self.purge(now_ms)

    def purge(self, now_ms: int) -> None:
        for sample in self.ring:
            if now_ms - sample[1] >= self.size * self.window_ms:
                sample[:] = [now_ms, now_ms, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(number_of(20)))
def test_the_running_sum_is_that_of_all_samples(seed: int) -> None:
    chance = random.Random(seed)
    samples, window_ms = chance.choice([(11, 1000), (1, 1000), (3, 100), (2, 30_000)])
    plain, summed = PlainSamples(samples, window_ms), WindowedSum(samples, window_ms, 0)
    now_ms = 0
    pause: Callable[[], int] = chance.choice(
        [lambda: chance.randrange(50), lambda: chance.choice([0, 1, window_ms - 1, window_ms, 3 * window_ms, samples * window_ms])]
    )
    for _ in range(2000):
        now_ms += pause()
        amount = chance.randrange(-10, 1000)
        if chance.random() < 0.8:
            plain.add(amount, now_ms)
            summed.add(amount, now_ms)
        else:
            plain.purge(now_ms)
        summed.pass_time(now_ms)
        assert summed.total == sum(sample[2] for sample in plain.ring)
        assert summed.oldest_ms == min(sample[0] for sample in plain.ring)
