"""Scrapes leave places for health checks, at the endpoint of a broker and at that of a host."""

from __future__ import annotations

import asyncio
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice

import pytest

from ottla.broker.metrics.endpoint import MetricsEndpoint
from ottla.broker.metrics.families import Found
from ottla.broker.metrics.http_server import MAX_REQUESTS, MOST_SCRAPES
from ottla.supervisor import host_endpoint
from ottla.supervisor.host_endpoint import BrokerFacts, HostEndpoint

SECONDS = 10.0
ANY_PORT = "127.0.0.1:0"
LIVE = (200, "live\n")


def get(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def scrape_with_all_places(address: str, end: threading.Event) -> tuple[set[tuple[int, str]], list[tuple[int, str]], list[int]]:
    """The answers to the scrapes beyond MOST_SCRAPES, of /health/live until `end`, and the statuses of the other scrapes after it."""
    with ThreadPoolExecutor(MAX_REQUESTS) as threads:
        try:
            scrapes = [threads.submit(get, address, "/metrics") for _ in range(MAX_REQUESTS)]
            refused = list(islice(as_completed(scrapes, SECONDS), MAX_REQUESTS - MOST_SCRAPES))
            lives = [get(address, "/health/live") for _ in range(MAX_REQUESTS)]
        finally:
            end.set()
        return {each.result() for each in refused}, lives, [each.result()[0] for each in scrapes if each not in refused]


def test_the_scrapes_of_a_broker_leave_places_for_its_health(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    async def held() -> list[Found]:
        await asyncio.to_thread(end.wait, SECONDS)
        return []

    async def run() -> None:
        endpoint = MetricsEndpoint(ANY_PORT)
        monkeypatch.setattr(endpoint, "_read", held)
        await endpoint.start()
        try:
            refused, lives, others = await asyncio.to_thread(scrape_with_all_places, endpoint.address, end)
            again, _ = await asyncio.to_thread(get, endpoint.address, "/metrics")
        finally:
            await endpoint.close()
        assert refused == {(503, "other scrapes are in progress\n")}
        assert lives == [LIVE] * MAX_REQUESTS
        assert [*others, again] == [200] * (MOST_SCRAPES + 1)

    asyncio.run(run())


def test_the_scrapes_of_a_host_leave_places_for_its_health(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def held(where: str) -> str | None:
        end.wait(SECONDS)
        return None

    async def facts() -> list[BrokerFacts]:
        return [BrokerFacts(0, "ready", True, 0, "where it serves")]

    async def run() -> None:
        endpoint = HostEndpoint(ANY_PORT, facts)
        await endpoint.start()
        try:
            refused, lives, others = await asyncio.to_thread(scrape_with_all_places, endpoint.address, end)
            again, _ = await asyncio.to_thread(get, endpoint.address, "/metrics")
        finally:
            await endpoint.close()
        assert refused == {(503, "other requests for all brokers are in progress\n")}
        assert lives == [LIVE] * MAX_REQUESTS
        assert [*others, again] == [200] * (MOST_SCRAPES + 1)

    monkeypatch.setattr(host_endpoint, "scrape", held)
    asyncio.run(run())
