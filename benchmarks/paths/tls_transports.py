"""Compares three ways to receive and to send over TLS on the event loop: `python -m benchmarks.paths.tls_transports`.

`uvloop` lets the loop wrap the connection, as the broker does. `socket` wraps the socket itself, non-blocking, and reads records into one
shared buffer. `memory` decrypts through a pair of MemoryBIOs, from one shared buffer of ciphertext. A process sends requests of 16 KiB, or
asks for answers of 1 MiB from a file in the page cache, which are read and encrypted in pieces of 128 KiB. The figures are the server's
processor time for a gigabyte in each direction, and its memory for an idle connection.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from benchmarks.brokers import process

REQUEST_BYTES: Final = 16 * 1024
BUFFER_BYTES: Final = 256 * 1024
RECORD_BYTES: Final = 16 * 1024
PIECE_BYTES: Final = 128 * 1024
ANSWER_BYTES: Final = 1024 * 1024
FILE_BYTES: Final = 256 * 1024 * 1024
"""Larger than the caches of the processor, as the logs of a broker are."""
SEND_BUFFER_BYTES: Final = 102_400
"""That of a listener, by default."""
CONNECTIONS: Final = 8
IDLE: Final = 500
_SHARED: Final = memoryview(bytearray(BUFFER_BYTES))


class Counter:
    """The bytes received and sent, of all connections. `file` has the answers to requests; None if there are none."""

    def __init__(self, file: int | None) -> None:
        self.received = self.sent = 0
        self.kept: list[object] = []
        self.answer_bytes = 0 if file is None else ANSWER_BYTES
        self._file = file
        self._position = 0

    def piece(self) -> memoryview:
        """The next piece of the file, in a buffer of its own, as the broker reads it."""
        assert self._file is not None
        room = memoryview(bytearray(PIECE_BYTES))
        os.preadv(self._file, [room], self._position)
        self._position = (self._position + PIECE_BYTES) % FILE_BYTES
        self.sent += PIECE_BYTES
        return room


class OfTheLoop(asyncio.BufferedProtocol):
    """A connection that the loop has wrapped."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1, low=0)

    def get_buffer(self, _: int) -> memoryview:
        return _SHARED

    def buffer_updated(self, nbytes: int) -> None:
        self._counter.received += nbytes
        self._left += self._counter.answer_bytes
        self.resume_writing()

    def resume_writing(self) -> None:
        while self._left and not self._transport.get_write_buffer_size():
            self._left -= PIECE_BYTES
            self._transport.write(self._counter.piece())

    def connection_lost(self, _: Exception | None) -> None:
        self._left = 0


async def by_uvloop(sock: socket.socket, context: ssl.SSLContext, counter: Counter) -> None:
    """The loop's own TLS."""
    loop = asyncio.get_running_loop()
    counter.kept.append(await loop.connect_accepted_socket(lambda: OfTheLoop(counter), sock, ssl=context))


class Watched:
    """A connection whose socket the loop watches. Answers are sent in pieces, as far as the socket accepts them."""

    def __init__(self, sock: socket.socket, counter: Counter) -> None:
        self._sock = sock
        self._counter = counter
        self._left = 0
        self._unsent: memoryview | None = None
        self._loop = asyncio.get_running_loop()

    def _prepare(self, piece: memoryview) -> memoryview:
        """The bytes to send for a piece."""
        raise NotImplementedError  # each kind of TLS has its own

    def _send_some(self, unsent: memoryview) -> memoryview | None:
        """Send bytes. Returns those that are left, if any."""
        raise NotImplementedError  # each kind of TLS has its own

    def _send(self) -> None:
        try:
            while self._left or self._unsent is not None:
                if self._unsent is None:
                    self._left -= PIECE_BYTES
                    self._unsent = self._prepare(self._counter.piece())
                self._unsent = self._send_some(self._unsent)
        except (BlockingIOError, ssl.SSLWantWriteError):
            self._loop.add_writer(self._sock.fileno(), self._send)
        except OSError:
            self._end()
        else:
            self._loop.remove_writer(self._sock.fileno())

    def _end(self) -> None:
        if (number := self._sock.fileno()) >= 0:
            self._left, self._unsent = 0, None
            self._loop.remove_reader(number)
            self._loop.remove_writer(number)
            self._sock.close()


class OfASocket(Watched):
    """A wrapped socket, read whenever it is readable."""

    def __init__(self, sock: ssl.SSLSocket, counter: Counter) -> None:
        super().__init__(sock, counter)
        self._tls = sock
        self._loop.add_reader(sock.fileno(), self._shake_hands)
        self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
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
        if have and self._counter.answer_bytes:
            self._left += self._counter.answer_bytes
            self._send()

    def _prepare(self, piece: memoryview) -> memoryview:
        return piece

    def _send_some(self, unsent: memoryview) -> None:
        self._tls.send(unsent)  # all of it, or it has to be tried again


async def by_socket(sock: socket.socket, context: ssl.SSLContext, counter: Counter) -> None:
    """TLS on the socket itself."""
    counter.kept.append(OfASocket(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), counter))


class OfMemory(Watched):
    """A plain socket, whose bytes go through a pair of MemoryBIOs."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, counter: Counter) -> None:
        super().__init__(sock, counter)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        try:
            got = self._sock.recv_into(_CIPHERTEXT)
        except BlockingIOError:
            return
        except OSError:
            got = 0
        if not got:
            self._end()
            return
        self._incoming.write(_CIPHERTEXT[:got])
        before = self._counter.received
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
        if self._counter.answer_bytes and self._counter.received > before:
            self._left += self._counter.answer_bytes
            self._send()

    def _prepare(self, piece: memoryview) -> memoryview:
        self._tls.write(piece)
        return memoryview(self._outgoing.read())

    def _send_some(self, unsent: memoryview) -> memoryview | None:
        sent = self._sock.send(unsent)
        return unsent[sent:] if sent < len(unsent) else None


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


def ask(port: int, connections: int, seconds: float, *, has_answers: bool) -> None:
    """The client's process: requests on every connection in turn; without seconds, only open connections until standard input ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opened = [context.wrap_socket(socket.create_connection(("127.0.0.1", port))) for _ in range(connections)]
    print("open", flush=True)
    request, room = bytes(1 if has_answers else REQUEST_BYTES), memoryview(bytearray(ANSWER_BYTES))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for connection in opened:
            connection.sendall(request)
        for connection in opened if has_answers else ():
            left = ANSWER_BYTES
            while left:
                left -= connection.recv_into(room[:left]) or left
    sys.stdin.read()
    for connection in opened:
        connection.close()


def file_of_answers(folder: Path) -> int:
    """A descriptor of a file whose pages are present."""
    with (folder / "answers").open("wb") as file:
        for _ in range(FILE_BYTES // ANSWER_BYTES):
            file.write(os.urandom(ANSWER_BYTES))
    return os.open(folder / "answers", os.O_RDONLY)


async def measure(way: str, folder: Path, seconds: float, *, has_answers: bool) -> tuple[float, float]:
    """Processor seconds for a gigabyte, and KiB for an idle connection."""
    loop = asyncio.get_running_loop()
    context, counter = server_context(folder), Counter(file_of_answers(folder) if has_answers else None)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    listening.setblocking(False)
    tasks: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        while True:
            sock, _ = await loop.sock_accept(listening)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            tasks.add(loop.create_task(WAYS[way](sock, context, counter)))

    accepting = loop.create_task(accept())

    async def with_client(connections: int, lasting: float, before_end: Callable[[], None]) -> None:
        port = str(listening.getsockname()[1])
        words = ["--ask", port, "--connections", str(connections), "--seconds", str(lasting), *(["--answers"] if has_answers else [])]
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.paths.tls_transports", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
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
    before_s, before = time.process_time(), counter.received + counter.sent
    await with_client(CONNECTIONS, seconds, lambda: None)
    used_s, moved = time.process_time() - before_s, counter.received + counter.sent - before
    accepting.cancel()
    listening.close()
    return used_s / max(moved, 1) * 1e9, idle_kib


def main() -> None:
    """Measure every way in a process of its own, in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--answers", action="store_true", help="the server sends, instead of receiving")
    parser.add_argument("--ask", type=int)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    asked = parser.parse_args()
    if asked.ask is not None:
        ask(asked.ask, asked.connections, asked.seconds, has_answers=asked.answers)
    elif asked.way is not None:
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            cost, memory = runner.run(measure(asked.way, Path(folder), asked.seconds, has_answers=asked.answers))
        work = "sends" if asked.answers else "receives"
        print(f"{asked.way:8} {work:8} {cost:6.2f} CPU s/GB {memory:6.0f} KiB for an idle connection", flush=True)
    else:
        for _, way, more in itertools.product(range(asked.turns), WAYS, ([], ["--answers"])):
            command = [sys.executable, "-m", "benchmarks.paths.tls_transports", "--way", way, "--seconds", str(asked.seconds), *more]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
