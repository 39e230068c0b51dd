"""Derives the limits of the network floor from the configuration, under Kafka's names.

`SocketServer.apply` puts changed limits into force.
"""

from typing import Final

from ottla.broker.network.host_names import HostNames
from ottla.config.broker import BrokerConfig
from ottla.config.keys.network import (
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    NUM_IO_THREADS,
    NUM_NETWORK_THREADS,
    QUEUED_MAX_REQUEST_BYTES,
    QUEUED_MAX_REQUESTS,
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
)
from ottla.config.keys.own import OTTLA_LARGE_REQUESTS_MAX_BYTES, OTTLA_TLS_HANDSHAKE_TIMEOUT_MS, OTTLA_TLS_HANDSHAKES
from ottla.config.schema.key import Key
from ottla.config.validation import max_connections_per_ip_overrides

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""Size of a processor's shared receive buffer: 64 KiB cost half as much again per request, more gains nothing."""
FULL_WINDOW_BYTES: Final = 4096
"""Bytes read from a connection at once while the request channel is full."""

LARGE_WINDOW_BYTES: Final = 64 * 1024
"""Bytes of a large request that are read at once when the time of the turn is used up. It takes 10 µs, as for 4 KiB. In a busy broker a
large request must not take longer than NS_PER_BYTE allows its client."""

LARGE_READS: Final = 16
"""Connections that waited for a turn to receive more of a large request, and do so in one turn. A read of one megabyte takes up to a
millisecond, because the kernel clears the pages."""

TURN_NS: Final = 8_000_000
"""Time for requests in a turn of the loop. With many ready connections a turn would take as long as all their requests."""
TURN_BYTES: Final = 256 * 1024
"""Bytes of a connection's answers that are written at once. After about this many, other connections have their turn."""
ANSWER_WEIGHT: Final = 2048
"""Bytes that an answer counts besides its own, so that a turn handles at most 128 requests, however small."""
MAX_APPENDED: Final = 128
"""Requests of one connection that may wait for replicas before the next one has to wait."""
MAX_UNSENT: Final = 16
"""Connections whose answers may wait until other connections are handled."""
FIRST_BYTES: Final = 64 * 1024
"""Bytes of a frame larger than the shared receive buffer that must have arrived before memory is allocated for it."""
PATIENCE_NS: Final = 2_000_000_000
"""Time for which nothing of a large frame may arrive while others wait for memory, ns."""
NS_PER_BYTE: Final = 4000
"""Time by which each of its bytes extends that: 250 kB a second are fast enough."""
LATE_CHECK_SECONDS: Final = 0.5
UNHANDLED_DIVISOR: Final = 4
"""Share of the memory of large requests that the kept bytes of small ones may take in addition, before every unfinished request needs room.
Beyond that a connection that is read keeps no more than FULL_WINDOW_BYTES without room."""
UNHANDLED_FREE_BYTES: Final = 4 * 1024 * 1024
"""Kept bytes of small requests for which no connection is examined."""
UNREAD_DIVISOR: Final = 2
"""Share of the memory of large requests that answers may take in addition while their clients do not read them."""
FREE_UNREAD_BYTES: Final = 512 * 1024
"""Bytes of unread answers that a connection may hold however many others do: twice TURN_BYTES, or the pieces of a file over TLS. A
consumer that works on its records reads nothing for minutes."""

INT_MAX: Final = 2**31 - 1


class NetworkLimits:
    """Limits under Kafka's names with underscores. Sizes are in bytes; -1 stands for the system's default or no limit, as in Kafka.

    `socket_receive_buffer_is_final`: the operator set the size, so it does not grow with the requests.
    """

    __slots__ = (
        "connections_max_idle_ms",
        "large_requests_max_bytes",
        "listener_max_connection_creation_rate",
        "listener_max_connections",
        "max_connection_creation_rate",
        "max_connections",
        "max_connections_per_ip",
        "max_connections_per_ip_overrides",
        "num_io_threads",
        "num_network_threads",
        "queued_max_request_bytes",
        "queued_max_requests",
        "socket_listen_backlog_size",
        "socket_receive_buffer_bytes",
        "socket_receive_buffer_is_final",
        "socket_request_max_bytes",
        "socket_send_buffer_bytes",
        "tls_handshake_timeout_ms",
        "tls_handshakes",
    )

    def __init__(
        self,
        *,
        connections_max_idle_ms: int = 600_000,
        listener_max_connection_creation_rate: dict[str, int] | None = None,
        listener_max_connections: dict[str, int] | None = None,
        max_connection_creation_rate: int = INT_MAX,
        max_connections: int = INT_MAX,
        max_connections_per_ip: int = INT_MAX,
        max_connections_per_ip_overrides: dict[str, int] | None = None,
        num_io_threads: int = 8,
        num_network_threads: int = 3,
        queued_max_request_bytes: int = -1,
        large_requests_max_bytes: int = 256 * 1024 * 1024,
        queued_max_requests: int = 500,
        socket_listen_backlog_size: int = 50,
        socket_receive_buffer_bytes: int = 102_400,
        socket_receive_buffer_is_final: bool = False,
        socket_request_max_bytes: int = 104_857_600,
        socket_send_buffer_bytes: int = 102_400,
        tls_handshake_timeout_ms: int = 30_000,
        tls_handshakes: int = 64,
    ) -> None:
        self.connections_max_idle_ms = connections_max_idle_ms
        self.listener_max_connection_creation_rate = listener_max_connection_creation_rate or {}
        self.listener_max_connections = listener_max_connections or {}
        self.max_connection_creation_rate = max_connection_creation_rate
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.max_connections_per_ip_overrides = max_connections_per_ip_overrides or {}
        self.num_io_threads = num_io_threads
        self.num_network_threads = num_network_threads
        self.queued_max_request_bytes = queued_max_request_bytes
        self.large_requests_max_bytes = large_requests_max_bytes
        self.queued_max_requests = queued_max_requests
        self.socket_listen_backlog_size = socket_listen_backlog_size
        self.socket_receive_buffer_bytes = socket_receive_buffer_bytes
        self.socket_receive_buffer_is_final = socket_receive_buffer_is_final
        self.socket_request_max_bytes = socket_request_max_bytes
        self.socket_send_buffer_bytes = socket_send_buffer_bytes
        self.tls_handshake_timeout_ms = tls_handshake_timeout_ms
        self.tls_handshakes = tls_handshakes


def limits_of(config: BrokerConfig, hosts: HostNames) -> NetworkLimits:
    """The limits of the configuration. Limits of hosts that `hosts` does not know are left out."""
    names = [endpoint.listener_name for endpoint in config.listeners.listeners]
    return NetworkLimits(
        connections_max_idle_ms=config[CONNECTIONS_MAX_IDLE_MS],
        listener_max_connection_creation_rate=_by_listener(config, names, MAX_CONNECTION_CREATION_RATE),
        listener_max_connections=_by_listener(config, names, MAX_CONNECTIONS),
        max_connection_creation_rate=config[MAX_CONNECTION_CREATION_RATE],
        max_connections=config[MAX_CONNECTIONS],
        max_connections_per_ip=config[MAX_CONNECTIONS_PER_IP],
        max_connections_per_ip_overrides=hosts.by_address(max_connections_per_ip_overrides(config[MAX_CONNECTIONS_PER_IP_OVERRIDES])),
        num_io_threads=config[NUM_IO_THREADS],
        num_network_threads=config[NUM_NETWORK_THREADS],
        queued_max_request_bytes=config[QUEUED_MAX_REQUEST_BYTES],
        large_requests_max_bytes=config[OTTLA_LARGE_REQUESTS_MAX_BYTES],
        queued_max_requests=config[QUEUED_MAX_REQUESTS],
        socket_listen_backlog_size=config[SOCKET_LISTEN_BACKLOG_SIZE],
        socket_receive_buffer_bytes=config[SOCKET_RECEIVE_BUFFER_BYTES],
        socket_receive_buffer_is_final=config.current.has(SOCKET_RECEIVE_BUFFER_BYTES),
        socket_request_max_bytes=config[SOCKET_REQUEST_MAX_BYTES],
        socket_send_buffer_bytes=config[SOCKET_SEND_BUFFER_BYTES],
        tls_handshake_timeout_ms=config[OTTLA_TLS_HANDSHAKE_TIMEOUT_MS],
        tls_handshakes=config[OTTLA_TLS_HANDSHAKES],
    )


def _by_listener(config: BrokerConfig, names: list[str], key: Key[int]) -> dict[str, int]:
    """The limits of single listeners. A listener without its own has none: the broker's limit counts all listeners together."""
    limits = {name: config.for_listener(name)[key] for name in names}
    return {name: limit for name, limit in limits.items() if limit != config[key]}
