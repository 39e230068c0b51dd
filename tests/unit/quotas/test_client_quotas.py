"""The sensors of limited clients: who has which, how many there are, and when they go."""

import pytest

from ottla.broker.quotas import client_quotas
from ottla.broker.quotas.client_quotas import SENSOR_EXPIRATION_MS, ClientQuotas, Windows
from ottla.broker.quotas.quota_bounds import ABSENT, Tags
from ottla.broker.quotas.quota_type import NS_PER_MS, QuotaType


class Clocked:
    """Quotas whose time is set by hand."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.quotas = ClientQuotas(Windows(11, 1000), Windows(11, 1000), Windows(2, 30_000), lambda: self.now_ms * NS_PER_MS)


def test_without_a_quota_nothing_is_counted() -> None:
    quotas = Clocked().quotas
    assert not quotas.is_limited
    quotas.set(("alice", ABSENT), {})
    assert (quotas.is_limited, quotas.generation) == (False, 0)
    assert quotas.sensors_of("alice", "app", 0) == (None, None, None, None)


def test_only_a_request_quota_needs_the_clock_in_every_request() -> None:
    quotas = Clocked().quotas
    quotas.set(("alice", ABSENT), {QuotaType.PRODUCE: 1000})
    assert (quotas.is_limited, quotas.counts_time, quotas.generation) == (True, False, 1)
    quotas.set(("alice", ABSENT), {QuotaType.REQUEST: 50})
    assert (quotas.is_limited, quotas.counts_time, quotas.generation) == (True, True, 2)
    quotas.set(("alice", ABSENT), {QuotaType.REQUEST: 50})
    assert quotas.generation == 2
    quotas.set(("alice", ABSENT), {})
    assert (quotas.is_limited, quotas.counts_time, quotas.generation) == (False, False, 3)


def test_clients_with_the_same_tags_share_a_sensor() -> None:
    quotas = Clocked().quotas
    quotas.set(("alice", ABSENT), {QuotaType.PRODUCE: 1000, QuotaType.CONTROLLER_MUTATION: 2})
    quotas.set((None, None), {QuotaType.FETCH: 500})
    produce, fetch, request, mutations = quotas.sensors_of("alice", "app", 0)
    assert request is None
    assert produce is not None
    assert fetch is not None
    assert mutations is not None
    assert (produce.tags, fetch.tags, mutations.tags) == (Tags("alice", ABSENT), Tags("alice", "app"), Tags("alice", ABSENT))
    assert (produce.bound, fetch.bound, mutations.bound) == (1000, 500, 2)
    other = quotas.sensors_of("alice", "other", 0)
    assert other[0] is produce
    assert other[1] is not fetch
    assert quotas.sensors_of("bob", "app", 0)[0] is None


def test_idle_sensors_expire() -> None:
    clocked = Clocked()
    quotas = clocked.quotas
    quotas.set((ABSENT, None), {QuotaType.PRODUCE: 1000})
    idle, _, _, _ = quotas.sensors_of("alice", "idle", 0)
    busy, _, _, _ = quotas.sensors_of("alice", "busy", 0)
    assert idle is not None
    assert busy is not None
    clocked.now_ms = SENSOR_EXPIRATION_MS
    busy.record(1, clocked.now_ms)
    quotas.expire()
    generation = quotas.generation
    assert len(quotas.produce.sensors) == 2
    clocked.now_ms += 1
    quotas.expire()
    assert list(quotas.produce.sensors.values()) == [busy]
    assert quotas.generation > generation  # connections look for their sensors again


def test_the_number_of_sensors_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MAX_SENSORS", 100)
    clocked = Clocked()
    quotas = clocked.quotas
    quotas.set((ABSENT, None), {QuotaType.PRODUCE: 1000})
    for number in range(1000):
        clocked.now_ms += 1
        quotas.sensors_of("alice", f"client-{number}", clocked.now_ms)
        assert len(quotas.produce.sensors) <= 100
    assert Tags(ABSENT, "client-999") in quotas.produce.sensors
    assert Tags(ABSENT, "client-0") not in quotas.produce.sensors
    assert len(quotas.fetch.sensors) == 0


def test_a_client_at_the_limit_keeps_its_count() -> None:
    clocked = Clocked()
    quotas = clocked.quotas
    quotas.set(("alice", ABSENT), {QuotaType.PRODUCE: 1000})
    first, _, _, _ = quotas.sensors_of("alice", "app", 0)
    assert first is not None
    assert first.record(20_000, 0) == 10_000
    quotas.set(("alice", ABSENT), {QuotaType.PRODUCE: 2000})
    again, _, _, _ = quotas.sensors_of("alice", "app", 0)
    assert again is first
    assert again.record(1000, 0) == 500


@pytest.mark.parametrize("samples", [1, 11, 2**31 - 1])
def test_absurd_windows_are_shortened(samples: int) -> None:
    windows = Windows.of(samples, (2**31 - 1) * 1000)
    quotas = ClientQuotas(windows, windows, windows, lambda: NS_PER_MS)
    quotas.set(("alice", ABSENT), {QuotaType.PRODUCE: 1})
    sensor, _, _, _ = quotas.sensors_of("alice", "app", 0)
    assert sensor is not None
    assert sensor.record(1, 1) >= 0
