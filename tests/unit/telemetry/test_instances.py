"""The client instances of a broker: when they may ask and push, what of them is kept, and for how long."""

from __future__ import annotations

import pytest

from ottla.broker.telemetry.instances import MAX_SERIES_OF_INSTANCE, Instance, Instances
from ottla.broker.telemetry.series import Sample, Series, samples_of
from ottla.broker.telemetry.subscriptions import Merged
from tests.support.otlp import gauge, metrics, point, total

NOW = 1_000_000


def an_instance(interval_ms: int = 10_000) -> Instance:
    return Instance(Merged(("*",), interval_ms, 1), 0)


def a_sample(name: str, value: float = 1.0, *, is_delta: bool = False) -> Sample:
    return Sample(Series(name, (), ()), value, is_delta)


def test_a_client_may_ask_once_an_interval() -> None:
    instance = an_instance()
    assert [instance.may_get(NOW + after) for after in (0, 1, 9_999, 10_000, 10_001)] == [True, False, False, True, False]


def test_a_client_may_push_once_after_it_has_asked_and_then_once_an_interval() -> None:
    instance = an_instance()
    assert instance.may_get(NOW)
    assert [instance.may_push(NOW + after) for after in (5_000, 5_001, 14_999, 15_000)] == [True, False, False, True]
    assert not instance.may_get(NOW + 24_999)
    assert instance.may_get(NOW + 25_000)
    assert instance.may_push(NOW + 25_001)


def test_the_instances_that_were_used_least_recently_are_forgotten_first() -> None:
    instances = Instances(2, 100)
    known = {name: an_instance() for name in (b"a", b"b", b"c")}
    for name in (b"a", b"b", b"a", b"c"):
        instances.use(name, known[name], NOW)
    assert [instances.get(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]


@pytest.mark.parametrize(("interval_ms", "expiry_ms"), [(10_000, 60_000), (100_000, 300_000)])
def test_a_silent_instance_expires(interval_ms: int, expiry_ms: int) -> None:
    instances = Instances(10, 100)
    instance = an_instance(interval_ms)
    instances.use(b"a", instance, NOW)
    instances.add(b"a", instance, [a_sample("x")])
    instances.expire(NOW + expiry_ms - 1)
    assert (len(instances), instances.series) == (1, 1)
    instances.expire(NOW + expiry_ms)
    assert (len(instances), instances.series) == (0, 0)


def test_changes_are_added_up_and_other_values_replaced() -> None:
    instances = Instances(10, 100)
    instance = an_instance()
    instances.use(b"a", instance, NOW)
    for _ in range(3):
        instances.add(b"a", instance, [a_sample("sum", 2.0, is_delta=True), a_sample("last", 5.0)])
    assert instance.values == {Series("sum", (), ()): 6.0, Series("last", (), ()): 5.0}
    assert instances.series == 2


def test_values_beyond_the_limit_of_a_client_are_counted_and_not_kept() -> None:
    instances = Instances(10, 10_000)
    instance = an_instance()
    instances.use(b"a", instance, NOW)
    instances.add(b"a", instance, [a_sample(str(at)) for at in range(MAX_SERIES_OF_INSTANCE + 7)])
    assert (len(instance.values), instances.series, instances.not_shown) == (MAX_SERIES_OF_INSTANCE, MAX_SERIES_OF_INSTANCE, 7)


def test_clients_are_forgotten_for_the_values_of_others() -> None:
    instances = Instances(10, 5)
    for name in (b"a", b"b", b"c"):
        instance = an_instance()
        instances.use(name, instance, NOW)
        instances.add(name, instance, [a_sample("x"), a_sample("y")])
    assert [instances.get(name) is not None for name in (b"a", b"b", b"c")] == [False, True, True]
    assert instances.series == 4
    oldest = instances.get(b"b")
    assert oldest is not None
    instances.add(b"b", oldest, [a_sample("z"), a_sample("u")])
    assert (instances.get(b"b"), instances.get(b"c"), instances.series) == (oldest, None, 4)


def test_no_value_is_kept_with_a_limit_of_none_or_for_a_forgotten_client() -> None:
    instances = Instances(1, 0)
    instance = an_instance()
    instances.use(b"a", instance, NOW)
    instances.add(b"a", instance, [a_sample("x")])
    assert (instances.series, instances.not_shown) == (0, 1)
    instances.use(b"b", an_instance(), NOW)
    instances.add(b"a", instance, [a_sample("x")])
    assert instances.series == 0


def test_names_and_labels_are_those_of_prometheus() -> None:
    pushed = metrics(
        gauge(
            "org.apache.kafka.consumer.lag-max", point(1, **{"client.rack": 'r"1', "__name__": "up", "client_id": "forged", "9digits": "9"})
        ),
        total("sent", point(2)),
        total("org.apache.kafka.all.total", point(3)),
    )
    samples, left_out = samples_of(pushed, "app", "ID", 10, lambda: None)
    own = ("client_id", "client_instance_id")
    assert left_out == 0
    assert [each.series for each in samples] == [
        Series("ottla_client_consumer_lag_max", (*own, "client_rack", "digits", "name__"), ("app", "ID", 'r"1', "9", "up")),
        Series("ottla_client_sent_total", own, ("app", "ID")),
        Series("ottla_client_all_total", own, ("app", "ID")),
    ]


def test_samples_beyond_the_limits_are_counted() -> None:
    pushed = metrics(gauge("a", *(point(at, at=str(at)) for at in range(5))))
    samples, left_out = samples_of(pushed, "app", "ID", 3, lambda: None)
    assert (len(samples), left_out) == (3, 2)
    pushed = metrics(gauge("a", point(1, **{f"l{at}": "y" * 250 for at in range(5)}), point(2)))
    samples, left_out = samples_of(pushed, "app", "ID", 3, lambda: None)
    assert ([each.value for each in samples], left_out) == ([2.0], 1)
