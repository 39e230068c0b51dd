"""Sizes the kernel's receive buffer of a connection, which grows with the requests that come.

Linux fixes at the handshake how large a window a connection can ever offer, from the SO_RCVBUF of its listener (tcp_openreq_init_rwin in
net/ipv4/tcp_minisocks.c): with the default of `socket.receive.buffer.bytes` 128 KiB, whatever the connection is given later. So only a size
that the operator chose is set on the listener, as Apache Kafka does; one that may grow is set on each connection. There the window has a
limit of its own, TCP_WINDOW_CLAMP, which stays behind when the buffer grows.
"""

import socket
from contextlib import suppress
from typing import Final

from broker.network.limits import NetworkLimits

LARGEST_BYTES: Final = 1024 * 1024
"""What a buffer grows to at most, `net.core.rmem_max` permitting: larger ones save no reads of requests of the usual sizes."""


def may_grow(limits: NetworkLimits) -> bool:
    """Whether the buffers are the broker's to choose, not the operator's or, with -1, the kernel's."""
    return limits.socket_receive_buffer_bytes != -1 and not limits.socket_receive_buffer_is_final


def set_receive_buffer(sock: socket.socket, size: int) -> None:
    """Have the kernel keep up to `size` bytes for a connection that was accepted, and offer as many. It may give less, without a word."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        if hasattr(socket, "TCP_WINDOW_CLAMP"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, size)
