"""The log of slow requests: which requests have a line, what it says, and how many lines there are."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.handlers.table import handlers_of
from ottla.broker.metrics.request_log import MAX_LINES, LoggedRequest, RequestLog, logger
from ottla.broker.metrics.request_metrics import RequestMetrics
from ottla.broker.network.timings import NO_TIMINGS, on_sent, on_write
from ottla.broker.security.client import Client
from ottla.broker.serving.route import Route
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema.registry import api
from ottla.replication.ports.topic_stats import BrokerTopicStats

MS = 1_000_000
CLIENT = Client("127.0.0.1:9092-127.0.0.1:5000-1", "127.0.0.1", 5000, "PLAINTEXT")


def header(key: ApiKey, version: int, *, flexible: bool) -> bytes:
    return int(key).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\x02me" + (b"\0" if flexible else b"")


def produce(version: int, *topics: str, size: int = 10) -> memoryview:
    request = ProduceRequest(
        acks=1,
        timeout_ms=100,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(size))]) for topic in topics],
    )
    return memoryview(bytearray(header(ApiKey.PRODUCE, version, flexible=version >= 9) + request.encode(version)))


def route_of(key: ApiKey, version: int) -> Route:
    return Route(api(key), version, *handlers_of(key))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    logger.setLevel(logging.NOTSET)
    yield caplog.messages
    logger.setLevel(logging.NOTSET)


class Bench:
    """One route with its metrics and its log, and the time in the test's hand."""

    def __init__(self, slow_ms: int | None) -> None:
        self.now_ns = 1000 * MS
        self.metrics = RequestMetrics(lambda: self.now_ns, BrokerTopicStats(), {}, RequestLog(slow_ms))
        self.route = route_of(ApiKey.PRODUCE, 9)
        self.metrics.watch(self.route)

    def request(self, takes_ms: int) -> None:
        connection: Any = type(
            "AConnection", (), {"received_ns": self.now_ns, "timings": NO_TIMINGS, "client": CLIENT, "last_throttle_time_ms": 0}
        )()
        connection.add_timing = lambda timing: setattr(connection, "timings", (*connection.timings, timing))

        def handle(frame: memoryview, connection: Any) -> bytes:
            self.route.requests += 1
            if self.route.requests == self.route.sample_at:
                return self.metrics.handle(handle, frame, connection, self.route)  # type: ignore[return-value]  # it is bytes here
            self.now_ns += takes_ms * MS
            return b"answer"

        handle(produce(9, "orders"), connection)
        self.now_ns += 2 * MS
        on_write(connection)
        self.now_ns += 1 * MS
        on_sent(connection)


def test_a_slow_request_has_one_line_with_the_time_in_every_station(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(slow_ms=10)
    bench.request(takes_ms=1)
    bench.request(takes_ms=20)
    assert caplog.messages == [
        "PRODUCE v9 of 127.0.0.1:9092-127.0.0.1:5000-1 (client id None, principal User:ANONYMOUS, listener PLAINTEXT, unknown) "
        "took 23.0 ms, slower than ottla.slow.request.ms: queue 0.0, local 20.0, remote 0.0, response queue 2.0, response send 1.0, "
        "throttled 0; "
        f"{len(produce(9, 'orders'))} bytes, topics orders"
    ]


def test_every_request_is_measured_while_slow_ones_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(slow_ms=0)
    for _ in range(MAX_LINES):
        bench.request(takes_ms=1)
    assert bench.metrics.log.logged == MAX_LINES
    assert len(caplog.messages) == MAX_LINES


def test_lines_of_a_second_are_bounded_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(slow_ms=0)
    for _ in range(MAX_LINES + 3):
        bench.request(takes_ms=1)
    bench.metrics.on_beat()
    assert caplog.messages[MAX_LINES:] == ["3 more requests were slow or logged in the last second; their lines are left out"]
    bench.request(takes_ms=1)
    assert len(caplog.messages) == MAX_LINES + 2


def test_at_the_level_debug_every_request_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(slow_ms=None)
    assert not bench.metrics.log.is_on
    with caplog.at_level(logging.DEBUG, logger.name):
        bench.metrics.on_beat()
        bench.request(takes_ms=1)
        bench.request(takes_ms=1)
    assert len(caplog.messages) == 2
    assert "slower" not in caplog.text
    bench.metrics.on_beat()
    assert not bench.metrics.log.is_on


def topics_of(frame: memoryview, key: ApiKey, version: int) -> list[str]:
    return LoggedRequest(RequestLog(0), frame, route_of(key, version), CLIENT).topics()


@pytest.mark.parametrize("version", [3, 9, 11])
def test_the_first_five_topics_are_named(version: int) -> None:
    frame = produce(version, *"abcdefg")
    assert topics_of(frame, ApiKey.PRODUCE, version) == [*"abcde"]


def test_of_a_large_request_the_topics_at_its_begin_are_named() -> None:
    assert topics_of(produce(9, "first", "second", size=100_000), ApiKey.PRODUCE, 9) == ["first"]


@pytest.mark.parametrize(("version", "name"), [(12, "orders"), (13, "AAAAAAAAAAAAAAAAAAAAAQ")])
def test_a_fetch_names_topics_or_their_ids(version: int, name: str) -> None:
    topic = FetchTopic(topic="orders", topic_id=bytes(15) + b"\1", partitions=[FetchPartition(partition=0)])
    frame = memoryview(bytearray(header(ApiKey.FETCH, version, flexible=True) + FetchRequest(topics=[topic]).encode(version)))
    assert topics_of(frame, ApiKey.FETCH, version) == [name]


def test_a_request_that_cannot_be_read_names_no_topic() -> None:
    assert topics_of(memoryview(bytearray(b"\0\0\0\x09\0\0\0\0\x7f\xff")), ApiKey.PRODUCE, 9) == []
