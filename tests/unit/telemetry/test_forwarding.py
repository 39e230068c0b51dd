"""A collector over HTTP gets the metrics of clients unchanged and in order; a slow or missing one costs metrics and nothing else."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import closing

import pytest

from ottla.broker.telemetry.forwarding import Forwarder, Pushed
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from tests.support.broker_process import eventually
from tests.support.otlp_collector import Collector, serving

ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def push(number: int, size: int = 4) -> Pushed:
    return Pushed(number.to_bytes(size, "big"), "app", ID)


def test_a_collector_gets_every_push_unchanged_in_order_and_with_the_client() -> None:
    with serving(Collector()) as collector, closing(Forwarder(collector.url)) as forwarder:
        for number in range(20):
            forwarder.add(push(number))
        forwarder.add(Pushed(b"\0\xff\r\n", "naïve\r\nclient: ☺", ID))
        eventually(lambda: forwarder.sent == 21, 30, "everything is sent")
        assert [body for _, _, body in collector.got] == [*(push(number).data for number in range(20)), b"\0\xff\r\n"]
        path, headers, _ = collector.got[-1]
        assert (path, headers["Content-Type"]) == ("/v1/metrics", "application/x-protobuf")
        assert (headers["X-Kafka-Client-Id"], headers["X-Kafka-Client-Instance-Id"]) == ("na%C3%AFve%0D%0Aclient%3A%20%E2%98%BA", ID)
        assert forwarder.dropped == 0


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_push_is_sent_again_while_the_collector_asks_for_that(status: int) -> None:
    answers = iter([status, status])
    with serving(Collector(lambda: next(answers, 200))) as collector, closing(Forwarder(collector.url)) as forwarder:
        forwarder.add(push(1))
        forwarder.add(push(2))
        eventually(lambda: forwarder.sent == 2, 30, "both are taken")
        assert [body for _, _, body in collector.got] == [push(number).data for number in (1, 1, 1, 2)]


def test_a_push_that_the_collector_refuses_is_dropped_with_one_line_and_the_next_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([400, 400])
    with (
        caplog.at_level(logging.INFO),
        serving(Collector(lambda: next(answers, 200))) as collector,
        closing(Forwarder(collector.url)) as forwarder,
    ):
        for number in range(3):
            forwarder.add(push(number))
        eventually(lambda: (forwarder.sent, forwarder.dropped) == (1, 2), 30, "two are refused")
    assert [record.getMessage() for record in caplog.records] == [
        f"metrics of clients are dropped, because {collector.url} does not take them: it answers with HTTP status 400",
        f"{collector.url} takes metrics of clients again; 2 pushes were dropped so far",
    ]


def test_a_collector_that_does_not_answer_fills_the_queue_and_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    may_answer = threading.Event()

    def status() -> int:
        may_answer.wait(60)
        return 200

    with (
        caplog.at_level(logging.INFO),
        serving(Collector(status)) as collector,
        closing(Forwarder(collector.url, queue_bytes=10 * push(0, 100).size)) as forwarder,
    ):
        for number in range(50):
            forwarder.add(push(number, 100))
        assert (forwarder.sent, forwarder.dropped) == (0, 40), "the first ten are in the queue, and nothing has waited"
        may_answer.set()
        eventually(lambda: forwarder.sent == 10, 30, "the collector has what was in the queue")
        assert [int.from_bytes(body, "big") for _, _, body in collector.got] == list(range(10))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert f"and {10 * push(0, 100).size} bytes wait for it" in caplog.records[0].getMessage()


def test_the_client_ids_of_what_waits_are_part_of_the_limit() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        closing(Forwarder(f"http://127.0.0.1:{silent.getsockname()[1]}/", queue_bytes=100_000)) as forwarder,
    ):
        for _ in range(100):
            forwarder.add(Pushed(b"", "x" * 30_000, ID))
        assert forwarder.dropped == 97


def test_the_log_says_once_that_metrics_wait_and_that_they_have_waited(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([503] * 6)
    with (
        caplog.at_level(logging.INFO),
        serving(Collector(lambda: next(answers, 200))) as collector,
        closing(Forwarder(collector.url)) as forwarder,
    ):
        forwarder.add(push(1))
        forwarder.add(push(2))
        eventually(lambda: len(caplog.records) == 2 and forwarder.sent == 2, 60, "both are taken at last")
    assert [record.getMessage() for record in caplog.records] == [
        f"metrics of clients wait, because {collector.url} does not take them: it answers with HTTP status 503",
        f"metrics of clients have waited, and {collector.url} answers again",
    ]


def test_a_client_whose_metrics_the_collector_refuses_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([400, 200] * 20)
    with (
        caplog.at_level(logging.INFO),
        serving(Collector(lambda: next(answers))) as collector,
        closing(Forwarder(collector.url)) as forwarder,
    ):
        for number in range(40):
            forwarder.add(push(number))
        eventually(lambda: (forwarder.sent, forwarder.dropped) == (20, 20), 30, "every second one is refused")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_host_that_has_no_encoding_is_a_collector_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    with closing(Forwarder("http://a..b:4318/")) as forwarder:
        forwarder.add(push(1))
        eventually(lambda: caplog.records, 60, "the log says so")
        assert forwarder.dropped == 0
    assert "metrics of clients wait, because http://a..b:4318/ does not take them" in caplog.records[0].getMessage()


def test_a_collector_that_comes_later_gets_what_has_waited() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with closing(Forwarder(f"http://127.0.0.1:{port}/", queue_bytes=2 * push(0, 100).size)) as forwarder:
        for number in range(3):
            forwarder.add(push(number, 100))
        assert forwarder.dropped == 1
        with serving(Collector(port=port)):
            eventually(lambda: forwarder.sent == 2, 60, "what has waited is sent")


def test_a_forwarder_that_is_closed_ends_its_thread_also_while_the_collector_is_silent() -> None:
    may_answer = threading.Event()

    def status() -> int:
        may_answer.wait(60)
        return 200

    before = set(threading.enumerate())
    with serving(Collector(status)) as collector:
        forwarder = Forwarder(collector.url)
        (thread,) = [each for each in set(threading.enumerate()) - before if each.name == "telemetry-forwarding"]
        forwarder.add(push(1))
        eventually(lambda: collector.got, 30, "the request is there")
        forwarder.close()
        eventually(lambda: not thread.is_alive(), 30, "the thread has ended")
        may_answer.set()
    assert forwarder.sent == 0


@pytest.mark.parametrize(
    "url", ["collector:4318", "ftp://collector/", "http://", "http://a b/", "http://h:99999/", "http://u:p@h/", "http://h/\n x"]
)
def test_an_address_that_is_no_url_of_a_collector_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.telemetry\.otlp\.url"):
        BrokerConfig({"log.dirs": "/x", "ottla.telemetry.otlp.url": url})
