"""Stands between a broker and its remote store, sends everything on a constant time later, and counts the reads of objects.

A process of its own, `python -m benchmarks.loadgen.late_proxy PORT MS`: bytes to and from this port of 127.0.0.1 arrive half of the MS
later. It prints its own port first, and for every line of its input how many GETs it has seen.
"""

import asyncio
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.apache_kafka import process_guard

_GET: Final = b"GET "
_AT_MOST: Final = 1 << 20
"""Bytes that the socket of either side takes before a reader waits for it."""


class LateProxy:
    """A running proxy."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.url = f"http://127.0.0.1:{int(self._stdout.readline())}"

    def gets(self) -> int:
        """The number of GET requests so far."""
        self._stdin.write("\n")
        self._stdin.flush()
        return int(self._stdout.readline())


@contextmanager
def a_late_proxy(url: str, round_trip_ms: float) -> Iterator[LateProxy]:
    """A proxy before this server, ended afterwards."""
    command = [sys.executable, "-m", __name__, url.rpartition(":")[2], str(round_trip_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process_guard().watch(process.pid)
        try:
            yield LateProxy(process)
        finally:
            process.kill()
            process.wait()
            process_guard().release(process.pid)


class _Side(asyncio.Protocol):
    """One of the two connections of a client. Bytes that it receives are sent to the other side when their time has come."""

    def __init__(self, counts: list[int], late_s: float, is_client: bool) -> None:
        self._counts = counts
        self._late_s = late_s
        self._is_client = is_client
        self._loop = asyncio.get_running_loop()
        self._due: deque[tuple[float, bytes]] = deque()
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_AT_MOST)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._is_client and data.startswith(_GET):  # a client waits for an answer before its next request
            self._counts[0] += 1
        self._due.append((self._loop.time() + self._late_s, data))
        if len(self._due) == 1:
            self._loop.call_later(self._late_s, self._send)

    def _send(self) -> None:
        if self.other is None:
            return  # there is no connection to the server yet, which sends all that has arrived
        now = self._loop.time()
        while self._due and self._due[0][0] <= now + 0.0002:
            self.other.write(self._due.popleft()[1])
        if self._due:
            self._loop.call_at(self._due[0][0], self._send)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self._loop.call_later(self._late_s, self.other.transport.close)


class _Client(_Side):
    """The side of a client. Its bytes wait for the connection to the server."""

    def __init__(self, counts: list[int], late_s: float, port: int) -> None:
        super().__init__(counts, late_s, True)
        self._port = port
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._task = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        server = _Side(self._counts, self._late_s, False)
        server.other = self
        await self._loop.create_connection(lambda: server, "127.0.0.1", self._port)
        self.other = server
        self._send()
        if self.transport is None and server.transport is not None:
            self._loop.call_later(self._late_s, server.transport.close)


async def _serve(port: int, late_s: float) -> None:
    loop = asyncio.get_running_loop()
    counts = [0]
    server = await loop.create_server(lambda: _Client(counts, late_s, port), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    asked = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    while await asked.readline():
        print(counts[0], flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 2000))
