"""Serves the metrics endpoint of a broker: /metrics for Prometheus, /health/live and /health/ready for process
managers, /health for people.

If `ottla.metrics.listener` is set, `ottla.broker.server` makes an endpoint before anything else, and calls

  start()          first of all, so that /health/ready answers "not ready" during the start
  attach(...)      when the services exist; from then on there are metrics, and requests are measured
  on_ready()       when requests are served
  on_stopping()    when they soon are not
  close()          last of all

/health/live answers as long as the event loop runs, because the loop accepts the connection. Scrapes leave places for it. /health/ready
answers 200 between `on_ready` and `on_stopping`, otherwise 503. /health answers with the same status. It says "degraded" and the reason
where a part of the broker does not work, so that clients need not be sent away.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ottla.broker.metrics.cluster_families import CLUSTER_FAMILIES
from ottla.broker.metrics.connection_families import CONNECTION_FAMILIES
from ottla.broker.metrics.controller_families import CONTROLLER_FAMILIES
from ottla.broker.metrics.controller_metrics import ControllerMetrics
from ottla.broker.metrics.exposition import render
from ottla.broker.metrics.families import Family, Found
from ottla.broker.metrics.fetch_rates import FetchRates
from ottla.broker.metrics.follower_families import FOLLOWER_FAMILIES
from ottla.broker.metrics.group_families import GROUP_FAMILIES, SHARE_FAMILIES
from ottla.broker.metrics.histogram import Histogram
from ottla.broker.metrics.http_server import MOST_SCRAPES, HttpServer, bind
from ottla.broker.metrics.log_families import LOG_FAMILIES
from ottla.broker.metrics.loop_watch import LoopWatch
from ottla.broker.metrics.quota_families import QUOTA_FAMILIES
from ottla.broker.metrics.remote.families import REMOTE_FAMILIES, REMOTE_METADATA_FAMILIES
from ottla.broker.metrics.replica_families import REPLICA_FAMILIES
from ottla.broker.metrics.request_families import REQUEST_FAMILIES
from ottla.broker.metrics.telemetry_families import TELEMETRY_FAMILIES, pushed
from ottla.broker.metrics.transaction_families import MEASURED_STATES, TRANSACTION_FAMILIES
from ottla.broker.metrics.view import BrokerState, View
from ottla.config.errors import ConfigError
from ottla.config.keys.own import OTTLA_METRICS_LISTENER, address

if TYPE_CHECKING:
    from ottla.broker.metrics.request_metrics import RequestMetrics
    from ottla.broker.network.socket_server import SocketServer
    from ottla.broker.request.services import Services
    from ottla.coordination.transactions.metadata import TransactionState

logger = logging.getLogger(__name__)

SECTIONS: Final = {
    "Requests": REQUEST_FAMILIES,
    "Connections": CONNECTION_FAMILIES,
    "Quotas of clients": QUOTA_FAMILIES,
    "Topics and replicas": REPLICA_FAMILIES,
    "Following other brokers": FOLLOWER_FAMILIES,
    "Logs": LOG_FAMILIES,
    "Tiered storage": REMOTE_FAMILIES,
    "The controller": CONTROLLER_FAMILIES,
    "Groups, the broker": CLUSTER_FAMILIES,
    "Transactions": TRANSACTION_FAMILIES,
    "Share groups": SHARE_FAMILIES,
    "Offsets of consumer groups": GROUP_FAMILIES,
    "Metrics of clients": TELEMETRY_FAMILIES,
    "Metadata of remote segments": REMOTE_METADATA_FAMILIES,
}
"""All families, by the section of docs/metrics.md that lists them."""

FAMILIES: Final[tuple[Family, ...]] = tuple(chain.from_iterable(SECTIONS.values()))
SCRAPE_SECONDS: Final = 30.0
_TEXT: Final = "text/plain; charset=utf-8"


class _NotNow(Exception):
    """There are no metrics yet, or no longer."""


class MetricsEndpoint:
    """See the module. `address` is the address of the started endpoint, as host:port."""

    def __init__(self, listener: str) -> None:
        self.address = ""
        self.state = BrokerState.STARTING
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._watch = LoopWatch(self._loop, time.monotonic, time.thread_time)
        self._flushes = Histogram()
        self._transaction_times = {state: Histogram() for state in MEASURED_STATES}
        self._store_latency = Histogram()
        self._verifications = Histogram()
        self._remote_reads = Histogram()
        self._new_view: Callable[[], View] | None = None
        self._trouble: Callable[[], str] = str
        self._scraping = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_SCRAPES)
        self._server: HttpServer | None = None
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    async def start(self) -> None:
        """Begin to listen. Raises ConfigError when the address is not available."""
        host, port = address(OTTLA_METRICS_LISTENER.name, self._listener)
        try:
            sock = await bind(host, port)
        except OSError as error:
            raise ConfigError(
                f"{OTTLA_METRICS_LISTENER.name}={self._listener} cannot be bound: {error.strerror or error}; "
                "stop what uses the address or set another one"
            ) from error
        self._server = HttpServer(sock, self._serve)
        self._server.start()
        self._watch.start()
        self.address = f"{f'[{host}]' if ':' in host else host}:{self._server.port}"
        logger.info("metrics are at http://%s/metrics", self.address)

    def attach(self, services: Services, socket_server: SocketServer, requests: RequestMetrics) -> None:
        """Expose the metrics of this broker. Its dispatcher measures `requests`."""
        controller = ControllerMetrics()
        services.cluster.controller.measure(controller.on_event, controller.on_sent)
        fetch_rates = FetchRates(lambda: () if services.cluster.fetcher_pool is None else services.cluster.fetcher_pool.fetchers.values())
        self._watch.on_second += [requests.on_beat, fetch_rates.on_second]
        self._watch.on_window += [requests.turn, self._flushes.turn, self._store_latency.turn, self._verifications.turn, controller.turn]
        self._watch.on_window += [histogram.turn for histogram in (self._remote_reads, *self._transaction_times.values())]
        services.coordinators.transactions.stats.on_left = self._on_transaction_left
        services.data.log_manager.context.on_flushed = self._flushes.add_seconds
        services.coordinators.transaction_verifier.on_answered = lambda milliseconds: self._verifications.add(int(milliseconds * 1000))
        events = services.administration.store.session_events
        if events is not None:
            events.stopwatch = time.monotonic
            events.on_answered = self._store_latency.add_seconds
        if services.remote is not None and (loads := services.remote.storage.loads) is not None:
            loads.on_read = self._remote_reads.add_seconds
        self._trouble = lambda: "" if services.remote is None else services.remote.storage.watch.trouble
        self._new_view = lambda: View(
            services,
            socket_server,
            requests,
            self._watch,
            self._flushes,
            self._store_latency,
            self._transaction_times,
            self._verifications,
            self._remote_reads,
            controller,
            fetch_rates,
            lambda: self.state,
            self._loop.time,
        )

    def on_ready(self) -> None:
        """Requests are served from now on."""
        self.state = BrokerState.RUNNING

    def on_stopping(self) -> None:
        """The broker stops."""
        self.state = BrokerState.SHUTTING_DOWN

    async def close(self) -> None:
        """Stop serving metrics and health."""
        self.state = BrokerState.NOT_RUNNING
        self._new_view = None
        self._watch.close()
        if self._server is not None:
            await self._server.close()

    def _on_transaction_left(self, state: TransactionState, time_ms: int) -> None:
        histogram = self._transaction_times.get(state)
        if histogram is not None:
            histogram.add(time_ms)

    # -- in threads of the HTTP server -------------------------------------------------------------------------------------

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        headers = [("Content-Type", _TEXT)]
        body: list[bytes]
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", [b"GET only\n"]
        elif path == "/metrics":
            status, headers, body = self._scrape(is_compressed="gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""))
        elif path == "/health/live":
            status, body = "200 OK", [b"live\n"]
        elif path in ("/health", "/health/ready"):
            is_ready = self.state is BrokerState.RUNNING
            status = "200 OK" if is_ready else "503 Service Unavailable"
            state = self.state.name.lower().replace("_", " ")
            trouble = self._trouble() if is_ready and path == "/health" else ""
            body = [(f"degraded\nthe remote store does not answer: {trouble}\n" if trouble else f"{state}\n").encode()]
        else:
            status, body = "404 Not Found", [b"/metrics, /health, /health/live, /health/ready\n"]
        headers.append(("Content-Length", str(sum(map(len, body)))))
        start_response(status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else body

    def _scrape(self, *, is_compressed: bool) -> tuple[str, list[tuple[str, str]], list[bytes]]:
        headers = [("Content-Type", _TEXT)]
        if not self._places.acquire(blocking=False):
            return "503 Service Unavailable", headers, [b"other scrapes are in progress\n"]
        try:
            status, body = self._metrics()
            if status.startswith("200"):
                headers = [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)]
                if is_compressed:
                    headers.append(("Content-Encoding", "gzip"))
                    body = _gzipped(body)
            return status, headers, body
        finally:
            self._places.release()

    def _metrics(self) -> tuple[str, list[bytes]]:
        # One at a time, so that concurrent scrapes by more than one Prometheus server do not add up on the loop.
        with self._scraping:
            try:
                reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)
                try:
                    found = reading.result(SCRAPE_SECONDS)
                finally:
                    reading.cancel()
            except _NotNow:
                return "503 Service Unavailable", [b"the broker is starting or stopping\n"]
            except TimeoutError:
                return "503 Service Unavailable", [b"the event loop is too busy\n"]
            except Exception:
                if self.state is BrokerState.RUNNING:
                    raise  # the server logs it
                return "503 Service Unavailable", [b"the broker is starting or stopping\n"]
            return "200 OK", [*render(found), generate_latest(self._registry)]

    async def _read(self) -> list[Found]:
        if self._new_view is None:
            raise _NotNow
        view = self._new_view()
        await view.prepare()
        return await view.read(FAMILIES) + await pushed(view.services.administration.telemetry.instances)


def _gzipped(parts: Iterable[bytes]) -> list[bytes]:
    """The parts in gzip format."""
    compressor = zlib.compressobj(1, wbits=31)
    return [*map(compressor.compress, parts), compressor.flush()]
