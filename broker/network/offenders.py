"""Limits log lines about hosts: a few lines per host and minute, then a count.

Pure: time is an argument. Tracks at most MAX_HOSTS hosts; further hosts share one entry.
"""

from collections.abc import Callable
from typing import Final

LINES_PER_WINDOW: Final = 5
WINDOW_SECONDS: Final = 60.0
MAX_HOSTS: Final = 1000
_OTHERS: Final = "other hosts"

_HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")
_NO_TLS: Final = frozenset({"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_TOO_SMALL"})
"""Reasons that OpenSSL gives for a first record that is none."""


def describe_length(size: int, limit: int, head: bytes, *, is_unauthenticated: bool = False) -> str:
    """The fault of a frame that claims `size` bytes. `head` has its first bytes, including the length.

    `is_unauthenticated`: the client has to authenticate first, and `limit` is that of such clients.
    """
    if head[:1] == b"\x16" and head[1:2] == b"\x03":
        return "this looks like TLS on a plaintext listener: check security.protocol of the client and the port"
    if head[:4] in _HTTP_METHODS:
        return "this looks like HTTP: the port speaks the Kafka protocol only"
    if size < 0:
        return f"a request of {size} bytes is impossible: the peer does not speak the Kafka protocol"
    if size == 0:
        return "an empty request has no header: the peer does not speak the Kafka protocol"
    key = "sasl.server.max.receive.size" if is_unauthenticated else "socket.request.max.bytes"
    return f"a request of {size} bytes is larger than {key}={limit}"


def describe_handshake(error: BaseException) -> str:
    """The fault of a TLS handshake that ended with `error`."""
    if getattr(error, "reason", None) in _NO_TLS:
        return f"this looks like plaintext on a TLS listener: check security.protocol of the client and the port ({error})"
    return str(error) or type(error).__name__


class Offenders:
    """Counts events per host and decides which are logged."""

    __slots__ = ("_events", "_hosts", "_say", "_window_ends")

    def __init__(self, say: Callable[[str], None], events: str = "connections were closed for bad or refused input") -> None:
        """`say` logs a line. `events` names in the plural the events that are reported."""
        self._say = say
        self._events = events
        self._hosts: dict[str, int] = {}
        self._window_ends = 0.0

    def report(self, host: str, line: str, now: float) -> None:
        """Report one event of `host`; `now` is monotonic, in seconds."""
        if now >= self._window_ends:
            self.summarize()
            self._window_ends = now + WINDOW_SECONDS
        hosts = self._hosts
        if host not in hosts and len(hosts) >= MAX_HOSTS:
            host = _OTHERS
        count = hosts.get(host, 0) + 1
        hosts[host] = count
        if count <= LINES_PER_WINDOW:
            self._say(line)
        if count == LINES_PER_WINDOW:
            self._say(f"{host}: further lines like this are not shown, but counted for {WINDOW_SECONDS:.0f} s")

    def summarize(self) -> None:
        """Log the counts of lines that were not shown, and start over."""
        for host, count in self._hosts.items():
            if count > LINES_PER_WINDOW:
                self._say(f"{host}: {count - LINES_PER_WINDOW} more {self._events}")
        self._hosts.clear()
