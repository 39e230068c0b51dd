"""Measures how long other clients wait while a broker answers a huge request of any API, with a given number of elements.

    python -m benchmarks.stalls.huge_requests [--elements 100000] [--only METADATA,FETCH] [--json FILE]

For every API it sends two requests in the last version. `wide` has all elements in its top-level arrays, and one element in each nested
array; `deep` has one element at the top, and all elements in each nested array. Strings differ, all other fields have their defaults. One
connection sends the request; a second sends ApiVersions once a millisecond. The longest wait of the second is printed, beside its longest
wait during half a second without a huge request: other load on the machine raises both.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.brokers.kinds import OttlaBroker
from ottla.protocol.api_keys import ApiKey
from tests.support.huge_requests import huge_requests

_PING = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)
_EVERY_S = 0.001
_ANSWER_S = 600.0


class Other:
    """The second connection: sends requests in a thread, and remembers its longest wait."""

    def __init__(self, port: int) -> None:
        self._socket = _connected(port)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.longest_s = 0.0
        self.answers = 0

    def __enter__(self) -> Other:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._socket.close()

    def _ask(self) -> None:
        while not self._ends.wait(_EVERY_S):
            began = time.monotonic()
            self._socket.sendall(_PING)
            _skip_answer(self._socket)
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            self.answers += 1


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), _ANSWER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _skip_answer(connection: socket.socket) -> int:
    """Reads one answer; its length, or -1 when the connection was closed instead."""
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return -1
    (length,) = struct.unpack(">i", head)
    left, buffer = length, bytearray(1 << 20)
    while left:
        received = connection.recv_into(buffer, min(left, len(buffer)))
        if not received:
            return -1
        left -= received
    return int(length)


def measure(broker: OttlaBroker, request: bytes | None, seconds: float = 0.5) -> dict[str, float]:
    """The longest wait of the other connection while `request` is answered; without a request, during `seconds`."""
    cpu = _cpu_s(broker.pid)
    began = time.monotonic()
    length = 0
    with Other(broker.port) as other:
        if request is None:
            time.sleep(seconds)
        else:
            with _connected(broker.port) as connection:
                try:
                    connection.sendall(request)
                    length = _skip_answer(connection)
                except (ConnectionResetError, BrokenPipeError):
                    length = -1
                except TimeoutError:
                    length = -2
            time.sleep(0.1)
    return {
        "longest_wait_ms": round(other.longest_s * 1000, 1),
        "took_ms": round((time.monotonic() - began) * 1000, 1),
        "cpu_ms": round((_cpu_s(broker.pid) - cpu) * 1000),
        "others_answered": other.answers,
        "answer_bytes": length,
        "rss_mib": _rss_mib(broker.pid),
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def main() -> None:
    parser = argparse.ArgumentParser(description="How long others wait while a huge request is answered.")
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--only", default="", help="names of APIs, with commas")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {}
    print(
        f"{'request':46} {'wait ms':>9} {'quiet ms':>9} {'took ms':>9} {'cpu ms':>8} {'MB in':>6} {'MB out':>7} {'rss MiB':>8}", flush=True
    )
    for name, request in huge_requests(arguments.elements, frozenset(filter(None, arguments.only.split(",")))):
        with tempfile.TemporaryDirectory() as directory:
            broker = OttlaBroker(Path(directory))
            broker.start()
            try:
                measure(broker, None, 0.2)
                quiet = measure(broker, None)
                found = measure(broker, request)
            finally:
                broker.stop()
        results[name] = found | {"quiet_ms": quiet["longest_wait_ms"], "request_bytes": len(request)}
        print(
            f"{name:46} {found['longest_wait_ms']:9.1f} {quiet['longest_wait_ms']:9.1f} {found['took_ms']:9.1f} {found['cpu_ms']:8.0f}"
            f" {len(request) / 1e6:6.1f} {found['answer_bytes'] / 1e6:7.1f} {found['rss_mib']:8}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
