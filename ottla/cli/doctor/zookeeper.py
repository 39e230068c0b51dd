"""Asks the ZooKeeper servers that the brokers of a cluster name in zookeeper.connect, and judges their answers.

Each server is asked `srvr`, the only one of its four-letter words that is allowed by default. A server that allows only TLS, or no such
word, is known to accept connections, and no more. Servers that this host does not reach at all may be in a network of the brokers.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from ottla.cli.doctor.configuration_checks import SLOW_SECONDS
from ottla.cli.doctor.kinds import Finding, found
from ottla.config.errors import ConfigError
from ottla.config.zookeeper_connect import parse_zookeeper_connect

_ANSWER_SECONDS: Final = 3.0
_MOST_BYTES: Final = 64 * 1024
_MOST_SERVERS: Final = 64
_DEFAULT_PORT: Final = 2181
_WORD: Final = b"srvr"
_LATENCY: Final = re.compile(r"^Latency min/avg/max: [\d.]+/([\d.]+)/[\d.]+", re.MULTILINE)
_NOT_SERVING: Final = "not currently serving requests"


class ServerFacts(NamedTuple):
    """A server of a ZooKeeper. `error` says why it was not reached; empty if it accepted the connection."""

    address: str
    error: str = ""
    is_serving: bool = True
    """False if it says that it serves no requests: it starts, or sees no majority of its ensemble."""
    average_seconds: float | None = None
    """Its own measure of the time for a request; None if it does not give any."""


def ask_servers(connects: Sequence[str]) -> list[ServerFacts]:
    """The servers of these values of zookeeper.connect, each once, all asked at the same time."""
    addresses: dict[str, None] = {}
    for connect in connects:
        try:
            servers, _ = parse_zookeeper_connect(connect)
        except ConfigError:
            continue  # no broker runs with it
        addresses.update(dict.fromkeys(servers.split(",")))
    listed = list(addresses)[:_MOST_SERVERS]
    if not listed:
        return []
    with ThreadPoolExecutor(len(listed)) as threads:
        return list(threads.map(ask_server, listed))


def ask_server(address: str) -> ServerFacts:
    """One server, at host or host:port."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(_DEFAULT_PORT)
    deadline = time.monotonic() + _ANSWER_SECONDS
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS) as connection:
            text = _answer(connection, deadline)
    except OSError as error:
        return ServerFacts(address, str(error.strerror or error))
    except UnicodeError:
        return ServerFacts(address, "this is no name of a host")
    latency = _LATENCY.search(text)
    return ServerFacts(address, "", _NOT_SERVING not in text, None if latency is None else float(latency[1]) / 1000)


def _answer(connection: socket.socket, deadline: float) -> str:
    """The text of the answer until its end or the deadline; empty if the server does not answer in text."""
    data = b""
    try:
        connection.sendall(_WORD)
        while len(data) < _MOST_BYTES and (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            part = connection.recv(4096)
            if not part:
                break
            data += part
    except OSError:
        pass  # the server has accepted the connection, and expects TLS
    return data.decode(errors="replace")


def check_zookeeper(servers: Sequence[ServerFacts]) -> Iterator[Finding]:
    """Servers that are down while others answer, that have no majority, or that are slow by their own account."""
    down = [each for each in servers if each.error]
    if len(down) < len(servers):
        for each in down:
            yield found("zookeeper-server-down", f"{each.address}: {each.error}", f"start the ZooKeeper server at {each.address}")
    idle = [each.address for each in servers if not each.is_serving]
    if idle:
        yield found(
            "zookeeper-unreachable",
            f"{', '.join(idle)}: it serves no requests, as it is starting, or no majority of the servers is alive",
            "start the other ZooKeeper servers",
        )
    for each in servers:
        if each.average_seconds is not None and each.average_seconds > SLOW_SECONDS:
            yield found(
                "zookeeper-slow",
                f"{each.address} answers a request after {each.average_seconds * 1000:.0f} ms on average since its start",
                "look at the disk and the load of ZooKeeper's hosts, and at the network between",
            )


def not_reached(servers: Sequence[ServerFacts]) -> list[str]:
    """A line if this host reaches none of the servers, which the brokers may reach nevertheless."""
    if not servers or any(not each.error for each in servers):
        return []
    return [f"ZooKeeper: this host does not reach {', '.join(f'{each.address} ({each.error})' for each in servers)}"]
