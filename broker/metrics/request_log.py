"""Logs slow requests, one line each: the client, the sizes, the first topics, and the time in every stage.

The logger is Kafka's `kafka.request.logger`. As in Apache Kafka, at the level DEBUG it has a line for every request. The times come from
the samples of `ottla.broker.metrics.request_metrics`: while requests are logged each of them is a sample; otherwise this costs nothing. At
most MAX_LINES lines are written a second; then a line gives the number of further ones.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.fetch import FetchReader
from ottla.protocol.cursors.produce import ProduceReader
from ottla.protocol.cursors.request_reader import END, NOTHING, RequestReader
from ottla.protocol.schema.wire import ProtocolError, skip_tagged_fields
from ottla.protocol.uuid import to_text

if TYPE_CHECKING:
    from ottla.broker.security.client import Client
    from ottla.broker.serving.route import Route

logger = logging.getLogger(__name__)

MAX_LINES: Final = 20
"""Lines in a second."""
KEPT_BYTES: Final = 4096
"""Bytes of a request that are kept until its answer is sent, so that a line can name its topics."""
MAX_TOPICS: Final = 5
"""Topics that a line names."""
FIRST_WITH_TOPIC_IDS: Final = 13
"""Fetch has ids instead of names from this version on."""

_MS: Final = 1_000_000


class RequestLog:
    """See the module. `is_on`: whether requests have to be measured for it."""

    def __init__(self, slow_ms: int | None) -> None:
        self.is_on = False
        self.logged = 0
        """Logged requests since the start: slow ones, and all at the level DEBUG."""
        self._slow_ns = None if slow_ms is None else slow_ms * _MS
        self._lines = 0
        self._unshown = 0
        self.on_beat()

    def on_beat(self) -> None:
        """Called about every second: reads the level of the logger, and reports how many lines were left out."""
        self.is_on = self._slow_ns is not None or logger.isEnabledFor(logging.DEBUG)
        if self._unshown:
            logger.warning("%d more requests were slow or logged in the last second; their lines are left out", self._unshown)
        self._lines = self._unshown = 0

    def on_sent(self, request: LoggedRequest, stations_ns: tuple[int, int, int, int, int], throttle_ms: int) -> None:
        """A request is finished. `stations_ns`: its times in the five stations; the client waits for `throttle_ms` after that."""
        total_ns = sum(stations_ns)
        is_slow = self._slow_ns is not None and total_ns >= self._slow_ns
        if not is_slow and not logger.isEnabledFor(logging.DEBUG):
            return
        self.logged += 1
        if self._lines >= MAX_LINES:
            self._unshown += 1
            return
        self._lines += 1
        queue_ms, local_ms, remote_ms, response_queue_ms, response_send_ms = (round(each / _MS, 3) for each in stations_ns)
        total_ms = round(total_ns / _MS, 3)
        remark = ", slower than ottla.slow.request.ms" if is_slow else ""
        topics = ", ".join(request.topics()) or "none named"
        client = request.client
        logger.log(
            logging.WARNING if is_slow else logging.DEBUG,
            "%s v%d of %s (client id %s, principal %s, listener %s, %s) took %s ms%s: "
            "queue %s, local %s, remote %s, response queue %s, response send %s, throttled %d; %d bytes, topics %s",
            request.api,
            request.version,
            client.connection_id,
            client.client_id,
            client.principal,
            client.listener_name,
            client.client_software_name,
            total_ms,
            remark,
            queue_ms,
            local_ms,
            remote_ms,
            response_queue_ms,
            response_send_ms,
            throttle_ms,
            request.size,
            topics,
        )


class LoggedRequest:
    """A measured request with what its line needs."""

    __slots__ = ("_flexible_header", "_head", "_log", "api", "client", "size", "version")

    def __init__(self, log: RequestLog, frame: memoryview, route: Route, client: Client) -> None:
        self._log = log
        self.api = ApiKey(route.api_key).name
        self.version = route.version
        self.client = client
        self.size = len(frame)
        self._flexible_header = route.flexible_request_header
        self._head = bytearray(frame[:KEPT_BYTES])

    def on_sent(self, stations_ns: tuple[int, int, int, int, int], throttle_ms: int) -> None:
        """The answer was sent. The times: in the queue, local, remote, in the response queue, and sending."""
        self._log.on_sent(self, stations_ns, throttle_ms)

    def topics(self) -> list[str]:
        """The first topics that begin in the kept part of a Produce or Fetch; other requests name none."""
        if self.api not in ("PRODUCE", "FETCH"):
            return []
        found: dict[str, None] = {}
        reader: RequestReader
        try:
            view = memoryview(self._head)
            offset = _body_offset(self._head, flexible=self._flexible_header)
            reader = ProduceReader(view, offset, self.version) if self.api == "PRODUCE" else FetchReader(view, offset, self.version)
            kind = NOTHING
            while len(found) < MAX_TOPICS and kind != END:
                try:
                    kind = reader.advance()
                finally:
                    if reader.topic:
                        found[self._name_of(bytes(reader.topic))] = None
        except (ProtocolError, struct.error, IndexError):
            pass  # the rest of the request was not kept
        return list(found)

    def _name_of(self, topic: bytes) -> str:
        if self.api == "FETCH" and self.version >= FIRST_WITH_TOPIC_IDS:
            return to_text(topic)
        return topic.decode("utf-8", "replace")


def _body_offset(head: bytearray, *, flexible: bool) -> int:
    """Where the body begins, after the request header."""
    (length,) = struct.unpack_from(">h", head, 8)
    offset = 10 + max(0, length)
    return skip_tagged_fields(memoryview(head), offset) if flexible else offset
