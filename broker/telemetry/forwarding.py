"""Forwards the metrics that clients push to a collector of OpenTelemetry, by OTLP over HTTP (KIP-714).

A thread posts what waits in a queue of limited size, one push at a time and in order. The event loop only adds to the queue. While the
collector is slow or away the queue fills, and further pushes are dropped. Lines in the log say that pushes wait, that they are dropped, and
that the collector takes metrics again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import suppress
from socket import SHUT_RDWR
from sys import getsizeof
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from http.client import HTTPConnection

logger = logging.getLogger(__name__)

QUEUE_BYTES: Final = 16 * 1024 * 1024
"""How many bytes may wait for the collector, those of client ids and of objects among them."""
SILENCE_SECONDS: Final = 10.0
"""How long the collector may be silent before the request has failed."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 10.0
_REPORTED_FAILURES: Final = 5
"""After so many failures of one push the log says so: it has waited for more than a second."""
_SILENT_SECONDS: Final = 60.0
"""Least time between two lines about dropped pushes. A client whose metrics the collector refuses would fill the log otherwise."""
_OBJECT_BYTES: Final = 256
"""The memory of a push besides its data and its client id, about."""
_AGAIN: Final = frozenset({429, 502, 503, 504})
"""The statuses after which OTLP lets a client repeat its request."""
_MAX_ANSWER_BYTES: Final = 64 * 1024


class Pushed(NamedTuple):
    """The metrics of one push: `data` is an OTLP MetricsData, which has the bytes of an ExportMetricsServiceRequest."""

    data: bytes
    client_id: str
    client_instance_id: str

    @property
    def size(self) -> int:
        """The memory that the push takes while it waits, bytes. The data may be much shorter than the client id."""
        return len(self.data) + getsizeof(self.client_id) + _OBJECT_BYTES


class Forwarder:
    """Sends to one collector from its creation until `close`. `url` is valid: see `config.keys.own`."""

    def __init__(self, url: str, queue_bytes: int = QUEUE_BYTES) -> None:
        self.sent = 0
        """The number of pushes that the collector has taken."""
        self.dropped = 0
        """The number of pushes that the collector has refused, or for which the queue had no room."""
        self._url = url
        self._queue_bytes = queue_bytes
        self._waiting: deque[Pushed] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_dropping = False
        self._silent_until = 0.0
        """The time on the monotonic clock before which no further line about dropped pushes is logged."""
        self._failure = "it is slow"
        self._connection: HTTPConnection | None = None
        threading.Thread(target=self._run, name="telemetry-forwarding", daemon=True).start()

    def add(self, pushed: Pushed) -> None:
        """Send a push when its turn comes, or drop it. Returns at once."""
        with self._changed:
            if self._waiting_bytes + pushed.size > self._queue_bytes:
                self._drop(f"{self._failure}, and {self._waiting_bytes} bytes wait for it")
                return
            self._waiting.append(pushed)
            self._waiting_bytes += pushed.size
            self._changed.notify()

    def close(self) -> None:
        """Let the thread end soon, without the pushes that still wait."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(SHUT_RDWR)

    def _drop(self, reason: str) -> None:
        """Count a push that is not sent. The caller has the lock."""
        self.dropped += 1
        now = time.monotonic()
        if not self._is_dropping and now >= self._silent_until:
            self._is_dropping = True
            self._silent_until = now + _SILENT_SECONDS
            logger.warning("metrics of clients are dropped, because %s does not take them: %s", self._url, reason)

    def _run(self) -> None:
        try:
            self._send_all()
        finally:
            self._disconnect()

    def _send_all(self) -> None:
        pause, failures = _FIRST_PAUSE_SECONDS, 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._waiting)
                if self._is_closed:
                    return
                pushed = self._waiting[0]
            if self._is_done_with(pushed):
                if failures >= _REPORTED_FAILURES:
                    logger.info("metrics of clients have waited, and %s answers again", self._url)
                pause, failures = _FIRST_PAUSE_SECONDS, 0
                continue
            failures += 1
            if failures == _REPORTED_FAILURES:
                logger.warning("metrics of clients wait, because %s does not take them: %s", self._url, self._failure)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _is_done_with(self, pushed: Pushed) -> bool:
        """Send the first push of the queue. False if it has to be sent again."""
        from http.client import HTTPException  # 1.4 MB of memory, which brokers without a collector save

        try:
            status, reason = self._post(pushed)
        except (OSError, HTTPException, UnicodeError) as error:  # UnicodeError: a host with an empty or too long label
            status, reason = 503, str(error) or type(error).__name__
            self._disconnect()
        with self._changed:
            if status in _AGAIN:
                self._failure = reason
                return False
            self._failure = "it is slow"
            self._waiting.popleft()
            self._waiting_bytes -= pushed.size
            if not 200 <= status < 300:
                self._drop(reason)
                return True
            self.sent += 1
            if self._is_dropping:
                self._is_dropping = False
                logger.info("%s takes metrics of clients again; %d pushes were dropped so far", self._url, self.dropped)
        return True

    def _post(self, pushed: Pushed) -> tuple[int, str]:
        """The status of the collector's answer, and its reason. Raises OSError, HTTPException."""
        from http.client import HTTPConnection, HTTPSConnection  # see above

        parts = urlsplit(self._url)
        connection = self._connection
        if connection is None:
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            connection = self._connection = kind(parts.hostname or "", parts.port, timeout=SILENCE_SECONDS)
        headers = {
            "Content-Type": "application/x-protobuf",
            "X-Kafka-Client-Id": quote(pushed.client_id),
            "X-Kafka-Client-Instance-Id": pushed.client_instance_id,
        }
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, pushed.data, headers)
        answer = connection.getresponse()
        if len(answer.read(_MAX_ANSWER_BYTES)) == _MAX_ANSWER_BYTES:
            self._disconnect()  # the rest of the answer is of no use
        return answer.status, f"it answers with HTTP status {answer.status}"

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
