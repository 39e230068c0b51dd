"""Requests at their stations: what is counted, what is measured, and how a sample stands for the others."""

from typing import Any

import pytest

from ottla.broker.handlers.table import handlers_of
from ottla.broker.metrics.request_metrics import MAX_INTERVAL, SAMPLE_SPACING_NS, RequestMetrics, request_name
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Pending
from ottla.broker.network.timings import NO_TIMINGS, on_sent, on_write
from ottla.broker.serving.route import Route
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.registry import api
from ottla.replication.ports.topic_stats import BrokerTopicStats

MS = 1_000_000
FRAME = memoryview(bytes(100))


class AConnection:
    """What the metrics see of one."""

    def __init__(self, received_ns: int) -> None:
        self.received_ns = received_ns
        self.last_throttle_time_ms = 250
        self.timings: tuple[Any, ...] = NO_TIMINGS

    def add_timing(self, timing: Any) -> None:
        self.timings = (*self.timings, timing)


class Bench:
    """One route and its metrics, with the time in the test's hand."""

    def __init__(self, key: ApiKey = ApiKey.PRODUCE, version: int = 9) -> None:
        self.now_ns = 1000 * MS
        self.stats = BrokerTopicStats()
        self.metrics = RequestMetrics(lambda: self.now_ns, self.stats, {})
        self.route = Route(api(key), version, *handlers_of(key))
        self.metrics.watch(self.route)
        self.measured = 0

    def request(self, answer: Answer = b"answer", *, waits_ns: int = 0, takes_ns: int = 0) -> AConnection:
        """As the dispatcher does it; the connection that has the answer to send."""
        connection: Any = AConnection(self.now_ns)
        self.now_ns += waits_ns

        def handle(frame: memoryview, connection: Any) -> Answer:
            self.route.requests += 1
            if self.route.requests == self.route.sample_at:
                self.measured += 1
                return self.metrics.handle(handle, frame, connection, self.route)
            self.now_ns += takes_ns
            return answer

        handle(FRAME, connection)
        return connection  # type: ignore[no-any-return]  # it is Any for the sake of `handle`

    def totals(self, request: str = "Produce") -> dict[str, tuple[int, int]]:
        """(count, microseconds) of every station."""
        stations = dict(self.metrics.named())[request]
        return {name: (getattr(stations, name).count, getattr(stations, name).total) for name in stations.__slots__}


def send(bench: Bench, connection: Any, *, after_ns: int = 0, takes_ns: int = 0) -> None:
    bench.now_ns += after_ns
    on_write(connection)
    bench.now_ns += takes_ns
    on_sent(connection)


def test_a_request_that_is_answered_at_once_is_measured_at_every_station() -> None:
    bench = Bench()
    connection = bench.request(waits_ns=1 * MS, takes_ns=2 * MS)
    send(bench, connection, after_ns=3 * MS, takes_ns=4 * MS)
    assert bench.totals() == {
        "queue": (1, 1000),
        "local": (1, 2000),
        "remote": (1, 0),
        "response_queue": (1, 3000),
        "response_send": (1, 4000),
        "total": (1, 10_000),
        "request_bytes": (1, 100),
        "throttle": (1, 250),
    }
    assert connection.timings == NO_TIMINGS


@pytest.mark.parametrize(("occupies_slot", "local", "remote"), [(False, 2000, 5000), (True, 7000, 0)])
def test_what_waits_is_remote_unless_it_executes(occupies_slot: bool, local: int, remote: int) -> None:
    bench = Bench()
    pending = Pending(occupies_slot=occupies_slot)
    connection = bench.request(pending, takes_ns=2 * MS)
    assert connection.timings == NO_TIMINGS
    bench.now_ns += 5 * MS
    pending.complete(b"answer")
    assert pending.timing is not None
    connection.timings = (pending.timing,)
    send(bench, connection, after_ns=1 * MS)
    totals = bench.totals()
    assert (totals["local"], totals["remote"], totals["response_queue"]) == ((1, local), (1, remote), (1, 1000))


@pytest.mark.parametrize("answer", [NO_RESPONSE, CLOSE])
def test_a_request_without_a_response_is_over_when_it_is_handled(answer: Answer) -> None:
    bench = Bench()
    bench.request(answer, takes_ns=2 * MS)
    assert bench.totals()["total"] == (1, 2000)


def test_a_pending_that_is_complete_already_is_like_an_answer() -> None:
    bench = Bench()
    pending = Pending()
    pending.complete(b"answer")
    send(bench, bench.request(pending))
    assert bench.totals()["total"][0] == 1


def test_at_a_low_rate_every_request_is_measured() -> None:
    bench = Bench()
    for _ in range(20):
        send(bench, bench.request())
        bench.now_ns += 2 * SAMPLE_SPACING_NS
    assert bench.measured == 20


@pytest.mark.slow
def test_at_a_high_rate_few_are_measured_and_stand_for_all() -> None:
    bench = Bench()
    for _ in range(50_000):
        send(bench, bench.request(takes_ns=10_000))
    assert bench.route.requests == 50_000
    assert bench.measured < 200
    counted = bench.totals()["total"][0]
    assert 50_000 - MAX_INTERVAL <= counted <= 50_000
    assert bench.totals()["local"][1] == counted * 10


def test_when_requests_become_rare_the_next_one_is_measured() -> None:
    bench = Bench()
    for _ in range(5000):
        send(bench, bench.request())
    bench.metrics.on_beat()
    measured = bench.measured
    bench.metrics.on_beat()
    send(bench, bench.request())
    assert bench.measured == measured + 1
    assert bench.totals()["total"][0] == 5001


def test_a_handler_that_raises_does_not_end_the_sampling() -> None:
    bench = Bench()

    def fail(frame: memoryview, connection: Any) -> Answer:
        bench.route.requests += 1
        raise RuntimeError("unforeseen")

    bench.route.requests += 1
    with pytest.raises(RuntimeError):
        bench.metrics.handle(fail, FRAME, AConnection(0), bench.route)  # type: ignore[arg-type]  # enough of a connection
    assert bench.route.requests == 1
    bench.now_ns += SAMPLE_SPACING_NS
    assert bench.route.sample_at > 1


def test_a_fetch_counts_as_one_of_a_consumer_or_of_a_follower() -> None:
    bench = Bench(ApiKey.FETCH)
    send(bench, bench.request())
    bench.stats.follower_fetches[9] = 1
    bench.route.requests += 1
    assert sorted(bench.metrics.requests()) == [("Fetch", 9, 2), ("FetchConsumer", 9, 1), ("FetchFollower", 9, 1)]
    assert {name for name, _ in bench.metrics.named()} == {"Fetch", "FetchConsumer"}


@pytest.mark.parametrize(("version", "name"), [(3, "AddPartitionsToTxn"), (4, "AddPartitionsToTxnVerification")])
def test_brokers_verify_transactions_under_a_name_of_its_own(version: int, name: str) -> None:
    bench = Bench(ApiKey.ADD_PARTITIONS_TO_TXN, version)
    send(bench, bench.request())
    assert list(bench.metrics.requests()) == [(name, version, 1)]
    assert [named for named, _ in bench.metrics.named()] == [name]


def test_quantiles_move_on_with_the_window() -> None:
    bench = Bench()
    send(bench, bench.request(takes_ns=2 * MS))
    bench.metrics.turn()
    bench.metrics.turn()
    assert dict(bench.metrics.named())["Produce"].local.look().quantiles((0.5,)) == [0.0]


def test_names_of_requests_are_kafkas() -> None:
    assert [request_name(key) for key in (ApiKey.LEADER_AND_ISR, ApiKey.API_VERSIONS)] == ["LeaderAndIsr", "ApiVersions"]
