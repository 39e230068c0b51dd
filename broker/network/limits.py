"""The limits of the network floor, under Kafka's names, and how they follow from the configuration.

`SocketServer` and `Processor` read these attributes whenever they need them, so a dynamic change is an assignment.
"""

from typing import Final

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""The shared receive buffer of a processor: 64 KiB costs half as much again per request, more gains nothing."""
FULL_WINDOW_BYTES: Final = 4096
"""What is read of a connection at once while the request channel is full."""

INT_MAX: Final = 2**31 - 1


class NetworkLimits:
    """Kafka's names with underscores; sizes in bytes, -1 means the system's default or no limit, as in Kafka."""

    __slots__ = (
        "connections_max_idle_ms",
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
        "socket_request_max_bytes",
        "socket_send_buffer_bytes",
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
        queued_max_requests: int = 500,
        socket_listen_backlog_size: int = 50,
        socket_receive_buffer_bytes: int = 102_400,
        socket_request_max_bytes: int = 104_857_600,
        socket_send_buffer_bytes: int = 102_400,
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
        self.queued_max_requests = queued_max_requests
        self.socket_listen_backlog_size = socket_listen_backlog_size
        self.socket_receive_buffer_bytes = socket_receive_buffer_bytes
        self.socket_request_max_bytes = socket_request_max_bytes
        self.socket_send_buffer_bytes = socket_send_buffer_bytes
