"""The metrics of several brokers at one address: whose each sample is, what a dead broker leaves, what Prometheus makes of it."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from ottla.supervisor.host_endpoint import BrokerFacts, HostEndpoint, health_lines, host_metrics, merged, scrape

FIRST = """# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{request="Fetch"} 3
requests_total{request="a } b {"} 4
# HELP open Open files.
# TYPE open gauge
open 5
"""
SECOND = """# HELP open Open files.
# TYPE open gauge
open 6
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{request="Fetch"} 7
# TYPE pushed gauge
pushed{broker="x",a="1"} 8
pushed{a=",broker=",broker="y"} 9
"""


def samples(text: str) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_family_is_whole_and_each_sample_names_its_broker() -> None:
    text = "".join(merged({0: FIRST, 1: SECOND}))
    assert [line for line in text.splitlines() if line.startswith("# TYPE")] == [
        "# TYPE requests_total counter",
        "# TYPE open gauge",
        "# TYPE pushed gauge",
    ]
    assert samples(text) == {
        ("requests_total", (("broker", "0"), ("request", "Fetch")), 3.0),
        ("requests_total", (("broker", "0"), ("request", "a } b {")), 4.0),
        ("requests_total", (("broker", "1"), ("request", "Fetch")), 7.0),
        ("open", (("broker", "0"),), 5.0),
        ("open", (("broker", "1"),), 6.0),
        ("pushed", (("a", "1"), ("broker", "1"), ("exported_broker", "x")), 8.0),
        ("pushed", (("a", ",broker="), ("broker", "1"), ("exported_broker", "y")), 9.0),
    }


def test_a_broker_that_is_dead_or_does_not_answer_is_down_and_only_brokers_that_serve_are_asked() -> None:
    facts = [
        BrokerFacts(0, "ready", True, 0, "zero"),
        BrokerFacts(1, "paused", False, 0, "one"),
        BrokerFacts(2, "ready", True, 4, "two"),
    ]
    asked: list[str] = []

    def ask(where: str) -> str | None:
        asked.append(where)
        return FIRST if where == "zero" else None

    found = samples("".join(host_metrics(facts, ask)))
    assert sorted(asked) == ["two", "zero"]
    up = {labels[0][1]: value for name, labels, value in found if name == "ottla_cluster_broker_up"}
    assert up == {"0": 1.0, "1": 0.0, "2": 0.0}
    restarts = {labels[0][1]: value for name, labels, value in found if name == "ottla_cluster_broker_restarts_total"}
    assert restarts == {"0": 0.0, "1": 0.0, "2": 4.0}


def test_the_health_of_a_host_names_what_is_degraded() -> None:
    facts = [BrokerFacts(0, "ready", True, 0, "zero"), BrokerFacts(1, "ready", True, 0, "one"), BrokerFacts(2, "paused", False, 0, "two")]
    texts = {"zero": "running\n", "one": "degraded\nthe remote store does not answer: 503\n"}
    assert list(health_lines(facts, texts.get)) == [
        "broker 0: ready\n",
        "broker 1: ready, degraded: the remote store does not answer: 503\n",
        "broker 2: paused\n",
    ]


def answers(endpoint_facts: Callable[[], list[BrokerFacts]], *paths: str) -> list[tuple[int, str]]:
    """The answers of an endpoint to requests for these paths."""

    async def play() -> list[tuple[int, str]]:
        async def facts() -> list[BrokerFacts]:
            return endpoint_facts()

        endpoint = HostEndpoint("127.0.0.1:0", facts)
        await endpoint.start()

        def ask() -> list[tuple[int, str]]:
            found = []
            for path in paths:
                connection = http.client.HTTPConnection(endpoint.address, timeout=20)
                connection.request("GET", path)
                answer = connection.getresponse()
                found.append((answer.status, answer.read().decode()))
                connection.close()
            return found

        try:
            return await asyncio.to_thread(ask)
        finally:
            await endpoint.close()

    return asyncio.run(play())


def test_the_health_of_a_host_is_that_of_all_its_brokers() -> None:
    ready, dead = BrokerFacts(0, "ready", True, 0, ""), BrokerFacts(1, "waiting", False, 3, "")
    assert answers(lambda: [ready], "/health", "/health/live", "/nothing") == [
        (200, "broker 0: ready\n"),
        (200, "live\n"),
        (404, "/metrics, /health, /health/live, /health/ready\n"),
    ]
    assert answers(lambda: [ready, dead], "/health/ready") == [(503, "broker 0: ready\nbroker 1: waiting\n")]


def test_an_endpoint_that_ends_the_connection_gives_no_metrics() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            connection, _ = listening.accept()
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert scrape(f"127.0.0.1:{listening.getsockname()[1]}") is None
        thread.join()
