"""The samples that the console keeps of a cluster: their bounds, their gaps, and the rates between two of them."""

from collections.abc import Iterable
from itertools import count

import pytest

from ottla.client.cluster import Cluster
from ottla.client.connection import Address, Connection
from ottla.client.errors import Unreachable
from ottla.client.group_admin import ListedGroup
from ottla.client.group_offsets.committed import Committed
from ottla.console.history import ring, sampler
from ottla.console.history.ring import MAX_SAMPLES, Ring
from ottla.console.history.sampler import ALIVE, LAG, RECORDS, SAMPLE_SECONDS, Sampler, rates
from ottla.protocol.topic_partition import TopicPartition
from tests.support.console_requests import HOST, ConsoleUnderTest

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_series_that_begins_late_or_stops_has_gaps() -> None:
    kept = Ring()
    kept.add(1, {"x": 1.0})
    kept.add(2, {"x": 2.0, "y": 5.0})
    kept.add(3, {"y": 6.0})
    assert kept.times_ms == [1, 2, 3]
    assert (kept.values("x"), kept.values("y"), kept.values("z")) == ([1.0, 2.0, None], [None, 5.0, 6.0], [None] * 3)


def test_the_oldest_samples_go_and_with_the_last_one_its_series() -> None:
    kept = Ring()
    kept.add(0, {"gone": 1.0})
    for time_ms in range(1, MAX_SAMPLES + 1):
        kept.add(time_ms, {"x": float(time_ms)})
    assert kept.times_ms == list(range(1, MAX_SAMPLES + 1))
    assert kept.values("x") == [float(each) for each in range(1, MAX_SAMPLES + 1)]
    assert kept._series.keys() == {"x"}


def test_there_are_no_more_series_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "MAX_SERIES", 2)
    kept = Ring()
    kept.add(1, {"x": 1.0, "y": 1.0, "z": 1.0})
    kept.add(2, {"z": 1.0, "x": 1.0})
    assert kept._series.keys() == {"x", "y"}


def test_rates_are_those_of_partitions_that_are_known_twice_and_never_below_zero() -> None:
    found = rates({A: 10, B: 50, C: 7}, {A: 30, B: 20, TopicPartition("new", 0): 1000}, 2.0)
    assert found == {RECORDS: 10.0, "records a": 10.0}
    assert rates({C: 7}, {C: 7}, 1.0) == {RECORDS: 0.0, "records b": 0.0}


class _Dead(Cluster):
    def new_connection(self, address: Address) -> Connection:
        """See Cluster."""
        raise Unreachable(f"no broker can be reached at {address}")


def test_a_cluster_that_does_not_answer_has_a_gap() -> None:
    sampler = Sampler(lambda: _Dead("127.0.0.1:1"))
    assert sampler.take() >= SAMPLE_SECONDS
    found = sampler.view(None, "")
    assert (len(found["times_ms"]), found["series"][ALIVE], found["series"][LAG]) == (1, [None], [None])


def test_a_sample_that_fails_by_a_bug_is_a_gap_and_one_line_until_one_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = Sampler(lambda: Cluster("127.0.0.1:1"))
    outcomes: list[Exception | None] = [KeyError("no such field"), KeyError("no such field"), None, KeyError("no such field")]

    def fill(_: Cluster, values: dict[str, float]) -> dict[str, float]:
        values[ALIVE] = 3.0
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return {"g": 7.0}

    monkeypatch.setattr(sampler, "_fill", fill)
    lines, lags = [], []
    for _ in range(4):
        assert sampler.take() >= SAMPLE_SECONDS
        lines.append(len(caplog.records))
        lags.append(sampler.lags()["groups"])
    assert lags == [[], [], [{"group": "g", "lag": 7}], []]  # those of an earlier sample are not shown
    assert sampler.view(None, "")["series"][ALIVE] == [None, None, 3.0, None]
    assert lines == [1, 1, 1, 2]


def test_groups_whose_coordinator_hangs_end_a_sample_without_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        @staticmethod
        def read(_: Cluster, group: str, __: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Committed]:
            return {A: Committed(3, "")}

    groups = [ListedGroup(name, "consumer", "Stable", "Classic", 0) for name in ("g", "h", "i")]
    monkeypatch.setattr(sampler, "reachable_groups", lambda _: (groups, {}))
    monkeypatch.setattr(sampler, "requests_of", lambda _: Slow)
    seconds = count(0, 6)  # for each look at the clock
    cut = Sampler(lambda: _Dead("127.0.0.1:1"), lambda: float(next(seconds)))
    assert cut._lags_of_groups(_Dead("127.0.0.1:1"), {A: 10}) == ({"g": 7}, False)
    whole = Sampler(lambda: _Dead("127.0.0.1:1"), lambda: 0.0)
    assert whole._lags_of_groups(_Dead("127.0.0.1:1"), {A: 10}) == ({"g": 7, "h": 7, "i": 7}, True)


def test_the_lag_of_a_group_is_unknown_and_not_zero_while_the_end_of_a_partition_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Positions:
        @staticmethod
        def read(_: Cluster, group: str, __: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Committed]:
            return {A: Committed(3, "")} if group == "g" else {A: Committed(10, ""), B: Committed(3, "")}

    groups = [ListedGroup(name, "consumer", "Stable", "Classic", 0) for name in ("h", "g")]
    monkeypatch.setattr(sampler, "reachable_groups", lambda _: (groups, {}))
    monkeypatch.setattr(sampler, "requests_of", lambda _: Positions)
    kept = Sampler(lambda: _Dead("127.0.0.1:1"), lambda: 0.0)
    assert kept._lags_of_groups(_Dead("127.0.0.1:1"), {A: 10}) == ({"g": 7}, False)


def test_the_api_has_the_samples_of_a_cluster_a_topic_or_a_group() -> None:
    console = ConsoleUnderTest()
    assert set(console.get("/api/v1/history", {"host": HOST}).json["series"]) == {"alive", "offline", "under_replicated", "records", "lag"}
    assert console.get("/api/v1/history?topic=t", {"host": HOST}).json["series"] == {"records": []}
    assert console.get("/api/v1/history?group=g", {"host": HOST}).json["series"] == {"lag": []}
    assert console.get("/api/v1/history?group=g&topic=t", {"host": HOST}).status == 400
    assert console.get("/api/v1/group-lags", {"host": HOST}).json == {"groups": []}
