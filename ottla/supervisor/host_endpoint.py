"""Serves the metrics and the health of all brokers of a host at one address.

Each broker has its own endpoint (`ottla.metrics.listener`), which is asked at the time of a scrape. The label `broker` tells the brokers
apart. A broker that does not run is not asked: `ottla_cluster_broker_up` is 0 for it. Started and closed by the supervisor.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from ottla.broker.metrics.http_server import MOST_SCRAPES, HttpServer, bind
from ottla.config.errors import ConfigError
from ottla.config.keys.own import address

SCRAPE_SECONDS: Final = 5.0
"""Time for the answer of one broker, seconds; all are asked at the same time."""
_LOOP_SECONDS: Final = 5.0
_MOST_THREADS: Final = 64
_TEXT: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
METRICS_OPTION: Final = "--metrics"
_ASKS_BROKERS: Final = frozenset({"/metrics", "/health"})
"""Paths whose answers wait for the brokers. /health/live and /health/ready do not, and find a place at any time."""
_LABEL: Final = re.compile(r'(\w+)(="(?:[^"\\]|\\.)*")')


class BrokerFacts(NamedTuple):
    """A broker as its supervisor sees it. `metrics` is host:port of its endpoint; empty if it has none or does not serve."""

    broker_id: int
    state: str
    is_ready: bool
    restarts: int
    metrics: str


class HostEndpoint:
    """See the module. `address` is that of the started endpoint, as host:port."""

    def __init__(self, listener: str, facts: Callable[[], Awaitable[list[BrokerFacts]]]) -> None:
        """`facts` is awaited on the running loop. Raises ConfigError for an address that is none."""
        self._listener = listener
        self._host, self._port = address(METRICS_OPTION, listener)
        self._facts = facts
        self._server: HttpServer | None = None
        self._places = threading.BoundedSemaphore(MOST_SCRAPES)
        self.address = ""

    async def start(self) -> None:
        """Begin to listen. Raises ConfigError when the address is not available."""
        try:
            sock = await bind(self._host, self._port)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                f"{METRICS_OPTION} {self._listener} cannot be bound: {reason}; stop what uses the address or set another one"
            ) from error
        self._loop = asyncio.get_running_loop()
        self._server = HttpServer(sock, self._serve)
        self._server.start()
        self.address = f"{f'[{self._host}]' if ':' in self._host else self._host}:{self._server.port}"

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.close()

    # -- in threads of the HTTP server -------------------------------------------------------------------------------------

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] not in _ASKS_BROKERS:
            return self._answer(environ, start_response)
        if not self._places.acquire(blocking=False):
            return _respond(environ, start_response, HTTPStatus.SERVICE_UNAVAILABLE, "other requests for all brokers are in progress\n")
        try:
            return self._answer(environ, start_response)
        finally:
            self._places.release()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, kind = environ["PATH_INFO"], _TEXT
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status, body = HTTPStatus.METHOD_NOT_ALLOWED, "GET only\n"
        elif path == "/metrics":
            status, body, kind = HTTPStatus.OK, "".join(host_metrics(self._now(), scrape)), _METRICS
        elif path in ("/health", "/health/ready"):
            facts = self._now()
            status = HTTPStatus.OK if facts and all(each.is_ready for each in facts) else HTTPStatus.SERVICE_UNAVAILABLE
            body = "".join(health_lines(facts, health if path == "/health" else _nothing))
        elif path == "/health/live":
            self._now()
            status, body = HTTPStatus.OK, "live\n"
        else:
            status, body = HTTPStatus.NOT_FOUND, "/metrics, /health, /health/live, /health/ready\n"
        return _respond(environ, start_response, status, body, kind)

    def _now(self) -> list[BrokerFacts]:
        async def read() -> list[BrokerFacts]:
            return await self._facts()

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result(_LOOP_SECONDS)


def _respond(
    environ: dict[str, Any], start_response: Callable[..., Any], status: HTTPStatus, body: str, kind: str = _TEXT
) -> Iterable[bytes]:
    data = body.encode()
    start_response(f"{status.value} {status.phrase}", [("Content-Type", kind), ("Content-Length", str(len(data)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [data]


def scrape(where: str) -> str | None:
    """The metrics of the broker with this endpoint; None if it gives none within SCRAPE_SECONDS."""
    return _get(where, "/metrics")


def health(where: str) -> str | None:
    """The health that the broker with this endpoint tells; None as for `scrape`."""
    return _get(where, "/health")


def _nothing(where: str) -> None:
    return None


def _get(where: str, path: str) -> str | None:
    connection = http.client.HTTPConnection(where, timeout=SCRAPE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return text if answer.status == HTTPStatus.OK else None


def _answers(facts: list[BrokerFacts], ask: Callable[[str], str | None]) -> dict[int, str]:
    """The answers of the brokers that serve and give one, by broker."""
    serving = [each for each in facts if each.is_ready and each.metrics]
    if not serving:
        return {}
    with ThreadPoolExecutor(min(len(serving), _MOST_THREADS)) as threads:
        answers = threads.map(ask, [each.metrics for each in serving])
        return {each.broker_id: text for each, text in zip(serving, answers, strict=True) if text is not None}


def health_lines(facts: list[BrokerFacts], ask: Callable[[str], str | None]) -> Iterator[str]:
    """A line for each broker: its state, and what is degraded of one that serves."""
    texts = _answers(facts, ask)
    for each in facts:
        state, _, reason = texts.get(each.broker_id, "").strip().partition("\n")
        yield f"broker {each.broker_id}: {each.state}{f', {state}: {reason}' if reason else ''}\n"


def host_metrics(facts: list[BrokerFacts], ask: Callable[[str], str | None]) -> Iterator[str]:
    """The lines of the metrics of all brokers, and the two families of their supervisor. Asks all brokers at the same time."""
    texts = _answers(facts, ask)
    yield "# HELP ottla_cluster_broker_up 1 if the broker runs and has answered this scrape, otherwise 0.\n"
    yield "# TYPE ottla_cluster_broker_up gauge\n"
    for each in facts:
        yield f'ottla_cluster_broker_up{{broker="{each.broker_id}"}} {int(each.broker_id in texts)}\n'
    yield "# HELP ottla_cluster_broker_restarts_total Restarts of the broker by its supervisor after it had died.\n"
    yield "# TYPE ottla_cluster_broker_restarts_total counter\n"
    for each in facts:
        yield f'ottla_cluster_broker_restarts_total{{broker="{each.broker_id}"}} {each.restarts}\n'
    yield from merged(texts)


def merged(texts: Mapping[int, str]) -> Iterator[str]:
    """The samples of several brokers by family, as the format of Prometheus demands, each with the label `broker`."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for broker_id, text in texts.items():
        label, family, is_first = f'broker="{broker_id}"', "", True
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
                if name != family:
                    family, is_first = name, name not in heads
                if is_first:
                    heads.setdefault(family, []).append(line + "\n")
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(_labelled(line, label) + "\n")
    for family in dict.fromkeys((*heads, *samples)):
        yield from heads.get(family, ())
        yield from samples.get(family, ())


def _labelled(sample: str, label: str) -> str:
    name, brace, rest = sample.partition("{")
    if not brace or " " in name:  # without labels; a value has no brace
        name, _, value = sample.partition(" ")
        return f"{name}{{{label}}} {value}"
    if rest.startswith("}"):
        return f"{name}{{{label}{rest}"
    if 'broker="' in rest:  # a metric that a client has pushed may have such a label; Prometheus, too, renames it so
        rest = _LABEL.sub(lambda match: f"{'exported_' * (match[1] == 'broker')}{match[0]}", rest)
    return f"{name}{{{label},{rest}"
