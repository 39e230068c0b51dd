"""Sizes the kernel's receive buffer of a connection, which grows with the size of the requests.

Linux fixes the largest window of a connection at the handshake, from the SO_RCVBUF of the listener (tcp_openreq_init_rwin in
net/ipv4/tcp_minisocks.c). With the default of `socket.receive.buffer.bytes` that is 128 KiB, whatever size the connection gets later. So
only a size that the operator set is set on the listener, as Apache Kafka does. A size that may grow is set on each connection. There the
window has a separate limit, TCP_WINDOW_CLAMP, which does not follow the size of the buffer.
"""

import socket
from contextlib import suppress
from typing import Final

from ottla.broker.network.limits import NetworkLimits

LARGEST_BYTES: Final = 1024 * 1024
"""Largest size of a buffer, if `net.core.rmem_max` permits. A larger one would save no reads for requests of usual sizes."""


def may_grow(limits: NetworkLimits) -> bool:
    """Whether the broker chooses the sizes, not the operator or (with -1) the kernel."""
    return limits.socket_receive_buffer_bytes != -1 and not limits.socket_receive_buffer_is_final


def set_receive_buffer(sock: socket.socket, size: int) -> None:
    """Have the kernel buffer up to `size` bytes for an accepted connection, and offer that window. It may silently use less."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        if hasattr(socket, "TCP_WINDOW_CLAMP"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, size)
