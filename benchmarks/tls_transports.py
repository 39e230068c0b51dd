"""Compares three ways to receive over TLS on the event loop: `python -m benchmarks.tls_transports`.

`uvloop` lets the loop wrap the connection, as the broker does. `socket` wraps the socket itself, non-blocking, and reads records into one
shared buffer. `memory` decrypts through a pair of MemoryBIOs, from one shared buffer of ciphertext. A process sends requests of 16 KiB. The
figures are the server's processor time for a gigabyte, and its memory for an idle connection. Other programs disturb them little.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from benchmarks import process

REQUEST_BYTES: Final = 16 * 1024
BUFFER_BYTES: Final = 256 * 1024
RECORD_BYTES: Final = 16 * 1024
CONNECTIONS: Final = 8
IDLE: Final = 500
_SHARED: Final = memoryview(bytearray(BUFFER_BYTES))


class Counter:
    """The bytes received, of all connections."""

    def __init__(self) -> None:
        self.received = 0
        self.kept: list[object] = []


class OfTheLoop(asyncio.BufferedProtocol):
    """A connection that the loop has wrapped."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def get_buffer(self, _: int) -> memoryview:
        return _SHARED

    def buffer_updated(self, nbytes: int) -> None:
        self._counter.received += nbytes


async def by_uvloop(sock: socket.socket, context: ssl.SSLContext, counter: Counter) -> None:
    """The loop's own TLS."""
    loop = asyncio.get_running_loop()
    counter.kept.append(await loop.connect_accepted_socket(lambda: OfTheLoop(counter), sock, ssl=context))


class OfASocket:
    """A wrapped socket, read whenever it is readable."""

    def __init__(self, sock: ssl.SSLSocket, counter: Counter) -> None:
        self._sock = sock
        self._counter = counter
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._shake_hands)
        self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return
        self._loop.add_reader(self._sock.fileno(), self._read)
        self._read()

    def _read(self) -> None:
        have = 0
        try:
            while have <= BUFFER_BYTES - RECORD_BYTES:
                got = self._sock.recv_into(_SHARED[have:])
                if not got:
                    self._end()
                    break
                have += got
            else:
                self._loop.call_soon(self._read)  # decrypted bytes that remain cause no event
        except ssl.SSLWantReadError:
            pass
        except OSError:
            self._end()
        self._counter.received += have

    def _end(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()


async def by_socket(sock: socket.socket, context: ssl.SSLContext, counter: Counter) -> None:
    """TLS on the socket itself."""
    counter.kept.append(OfASocket(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), counter))


class OfMemory:
    """A plain socket, whose bytes go through a pair of MemoryBIOs."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, counter: Counter) -> None:
        self._sock = sock
        self._counter = counter
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        try:
            got = self._sock.recv_into(_CIPHERTEXT)
        except BlockingIOError:
            return
        except OSError:
            got = 0
        if not got:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            return
        self._incoming.write(_CIPHERTEXT[:got])
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while True:
                self._counter.received += self._tls.read(BUFFER_BYTES, _SHARED)  # type: ignore[operator]  # with a buffer it returns a number
        except ssl.SSLError:  # it wants more, or it is the end
            pass
        if self._outgoing.pending:
            self._sock.sendall(self._outgoing.read())


_CIPHERTEXT: Final = memoryview(bytearray(BUFFER_BYTES))


async def by_memory(sock: socket.socket, context: ssl.SSLContext, counter: Counter) -> None:
    """TLS in memory."""
    counter.kept.append(OfMemory(sock, context, counter))


WAYS: Final = {"uvloop": by_uvloop, "socket": by_socket, "memory": by_memory}


def server_context(folder: Path) -> ssl.SSLContext:
    """A context with a certificate of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=2))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(private + builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "key.pem")
    return context


def send(port: int, connections: int, seconds: float) -> None:
    """The client's process: requests on every connection in turn; without seconds, only open connections until standard input ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opened = [context.wrap_socket(socket.create_connection(("127.0.0.1", port))) for _ in range(connections)]
    print("open", flush=True)
    request = bytes(REQUEST_BYTES)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for connection in opened:
            connection.sendall(request)
    sys.stdin.read()
    for connection in opened:
        connection.close()


async def measure(way: str, folder: Path, seconds: float) -> tuple[float, float]:
    """Processor seconds for a gigabyte, and KiB for an idle connection."""
    loop = asyncio.get_running_loop()
    context, counter = server_context(folder), Counter()
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    listening.setblocking(False)
    tasks: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        while True:
            sock, _ = await loop.sock_accept(listening)
            sock.setblocking(False)
            tasks.add(loop.create_task(WAYS[way](sock, context, counter)))

    accepting = loop.create_task(accept())

    async def with_client(connections: int, lasting: float, before_end: Callable[[], None]) -> None:
        port = str(listening.getsockname()[1])
        words = ("--send-to", port, "--connections", str(connections), "--seconds", str(lasting))
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.tls_transports", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert client.stdout is not None
        assert client.stdin is not None
        await client.stdout.readline()
        await asyncio.sleep(lasting + 0.3)
        before_end()
        client.stdin.close()
        await client.wait()

    idle_kib = 0.0
    before_bytes = process.resident_bytes(os.getpid())

    def note() -> None:
        nonlocal idle_kib
        idle_kib = (process.resident_bytes(os.getpid()) - before_bytes) / IDLE / 1024

    await with_client(IDLE, 0, note)
    before_s, before = time.process_time(), counter.received
    await with_client(CONNECTIONS, seconds, lambda: None)
    used_s, received = time.process_time() - before_s, counter.received - before
    accepting.cancel()
    listening.close()
    return used_s / max(received, 1) * 1e9, idle_kib


def main() -> None:
    """Measure every way in a process of its own, in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--send-to", type=int)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    asked = parser.parse_args()
    if asked.send_to is not None:
        send(asked.send_to, asked.connections, asked.seconds)
    elif asked.way is not None:
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            cost, memory = runner.run(measure(asked.way, Path(folder), asked.seconds))
        print(f"{asked.way:8} {cost:6.2f} CPU s/GB {memory:6.0f} KiB for an idle connection", flush=True)
    else:
        for _ in range(asked.turns):
            for way in WAYS:
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.tls_transports", "--way", way, "--seconds", str(asked.seconds)], check=True
                )


if __name__ == "__main__":
    main()
