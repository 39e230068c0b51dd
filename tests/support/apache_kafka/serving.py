"""Asks a broker over the wire, without any client library, whether it serves.

An open port is not enough: Apache Kafka binds its listeners long before it answers. Both questions use the oldest versions of ApiVersions
and Metadata that every 3.9 broker answers, so they work for any broker under test.
"""

import socket
import struct
import time

_API_VERSIONS, _METADATA = 18, 3


def answers_api_versions(host: str, port: int, timeout: float = 2.0) -> bool:
    """Whether a server at this address answers ApiVersions without an error, within `timeout` seconds."""
    body = _ask((host, port), _API_VERSIONS, 0, b"", timeout)
    return body is not None and len(body) > 2 and body[:2] == b"\0\0"


def known_brokers(host: str, port: int, timeout: float = 2.0) -> tuple[int, frozenset[int]]:
    """(controller id or -1, broker ids) as the broker at this address knows them; (-1, nothing) when it does not answer."""
    body = _ask((host, port), _METADATA, 1, struct.pack(">i", 0), timeout)
    if body is None:
        return -1, frozenset()
    (count,) = struct.unpack_from(">i", body)
    at, ids = 4, set()
    for _ in range(count):
        node_id, host_length = struct.unpack_from(">ih", body, at)
        at += 6 + host_length + 4
        (rack_length,) = struct.unpack_from(">h", body, at)
        at += 2 + max(rack_length, 0)
        ids.add(node_id)
    (controller_id,) = struct.unpack_from(">i", body, at)
    return controller_id, frozenset(ids)


def _ask(address: tuple[str, int], api_key: int, version: int, request: bytes, timeout: float) -> bytes | None:
    """The response body after its correlation id, or None when none came."""
    head = struct.pack(">hhih", api_key, version, 1, 5) + b"probe"
    deadline = time.monotonic() + timeout
    try:
        with socket.create_connection(address, timeout) as connection:
            connection.sendall(struct.pack(">i", len(head) + len(request)) + head + request)
            received = b""
            while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                more = connection.recv(65536)
                if not more:
                    return None
                received += more
    except OSError:
        return None
    return received[8:]
