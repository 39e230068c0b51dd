"""Loads a listener over TLS: requests in rounds over a few connections, handshakes one after the other, or idle connections.

Runs as a process of its own, bound to the generator's core. Standard input has its task, standard output its result, a line of JSON each.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tests.support.apache_kafka import pinned_to

_PATIENCE_S: Final = 60.0
_PIECE_BYTES: Final = 1 << 20
_SIZE_BYTES: Final = 4


def run(task: Mapping[str, Any], pin_cpu: int | None, more_s: float = 0.0) -> dict[str, float]:
    """Do a task in a process, and return its numbers. Raises OSError when it fails."""
    with start(task, pin_cpu) as process:
        output, _ = process.communicate(timeout=_PATIENCE_S + more_s)
    if process.returncode:
        raise OSError(f"the generator of TLS failed at {task['kind']}")
    found: dict[str, float] = json.loads(output)
    return found


@contextmanager
def start(task: Mapping[str, Any], pin_cpu: int | None) -> Iterator[subprocess.Popen[str]]:
    """A process that does a task; it ends with the context."""
    with pinned_to(pin_cpu):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.loadgen.tls_load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def requests(port: int, frames: Sequence[bytes], connections: int, seconds: float) -> dict[str, Any]:
    """The task that sends these requests over and over for a time, one at a time on each connection."""
    texts = [b64encode(frame).decode() for frame in frames]
    return {"kind": "requests", "port": port, "frames": texts, "connections": connections, "seconds": seconds}


def handshakes(port: int, seconds: float, *, is_resumed: bool = False, per_second: float = 0.0) -> dict[str, Any]:
    """The task that connects over and over for a time, at a rate if that is not 0."""
    return {"kind": "handshakes", "port": port, "seconds": seconds, "is_resumed": is_resumed, "per_second": per_second}


def idle(port: int, connections: int) -> dict[str, Any]:
    """The task that opens connections, prints `{}`, and keeps them until its standard input ends."""
    return {"kind": "idle", "port": port, "connections": connections}


def _context(*, is_resumed: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if is_resumed:
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # its tickets come with the handshake, so no request is needed to get one
    return context


def _connect(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, session=session)


def _receive(connection: ssl.SSLSocket, buffer: memoryview) -> int:
    """Read one answer; its size in bytes."""
    have, wanted = 0, _SIZE_BYTES
    while have < _SIZE_BYTES:
        have += _some(connection, buffer[have:])
    wanted += int.from_bytes(buffer[:_SIZE_BYTES], "big")
    while have < wanted:  # the next answer waits for its request, so no byte of it is here
        have += _some(connection, buffer[: wanted - have])
    return wanted


def _some(connection: ssl.SSLSocket, buffer: memoryview) -> int:
    got = connection.recv_into(buffer)
    if not got:
        raise OSError("the broker closed a connection")
    return got


def _send_requests(task: Mapping[str, Any]) -> dict[str, float]:
    frames = [b64decode(text) for text in task["frames"]]
    context = _context()
    connections = [_connect(task["port"], context) for _ in range(task["connections"])]
    buffer = memoryview(bytearray(_PIECE_BYTES))
    done, answered, turn = 0, 0, 0
    began, used = time.monotonic(), time.process_time()
    for connection in connections:
        connection.sendall(frames[turn % len(frames)])
        turn += 1
    while time.monotonic() - began < task["seconds"]:
        for connection in connections:
            answered += _receive(connection, buffer)
            connection.sendall(frames[turn % len(frames)])
            turn += 1
            done += 1
    took = time.monotonic() - began
    return {"per_second": done / took, "answered_per_second": answered / took, "busy_share": (time.process_time() - used) / took}


def _shake_hands(task: Mapping[str, Any]) -> dict[str, float]:
    context = _context(is_resumed=task["is_resumed"])
    session = None
    done = reused = 0
    began, used = time.monotonic(), time.process_time()
    while (passed := time.monotonic() - began) < task["seconds"]:
        if task["per_second"] and done > passed * task["per_second"]:
            time.sleep(0.001)
            continue
        with _connect(task["port"], context, session) as connection:
            reused += bool(connection.session_reused)
            session = connection.session if task["is_resumed"] else None
        done += 1
    took = time.monotonic() - began
    return {"per_second": done / took, "reused_share": reused / max(done, 1), "busy_share": (time.process_time() - used) / took}


def _stay(task: Mapping[str, Any]) -> dict[str, float]:
    context = _context()
    connections = [_connect(task["port"], context) for _ in range(task["connections"])]
    print("{}", flush=True)
    sys.stdin.read()
    for connection in connections:
        connection.close()
    return {}


_KINDS: Final = {"requests": _send_requests, "handshakes": _shake_hands, "idle": _stay}

if __name__ == "__main__":
    asked = json.loads(sys.stdin.readline())
    print(json.dumps(_KINDS[asked["kind"]](asked)))
