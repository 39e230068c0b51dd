"""Measures the network floor beside a bare echo: processor time per request and memory per idle connection.

    .venv/bin/python -m benchmarks.paths.network [--seconds S] [--turns N] [--idle N] [--cpu SERVER,GENERATOR]
                                                 [--connections N] [--in-flight N]

Each server runs in its own process with a handler that does nothing. So the difference is the path from the socket to the handler and back:
limits, ordering, queueing, accounting. The bare server is the minimum for frames on uvloop: a BufferedProtocol with one shared buffer, and
one write per read. Loads take turns, so that changes of the machine's pace affect both. The column `kernel` is the part of the bare
server's processor time in the kernel: with one request in flight for each connection, that of a read, a write, and a share of `epoll_wait`.
"""

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from struct import Struct
from typing import cast

import uvloop

from benchmarks.brokers.process import cpu_s, resident_bytes
from benchmarks.loadgen.runner import Load, run_load
from ottla.broker.network.connection import Connection
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.request_channel import Answer
from ottla.broker.network.socket_server import SocketServer
from ottla.config.listeners import EndPoint, SecurityProtocol
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.apache_kafka import pinned_to

CONNECTIONS = 8
IN_FLIGHT = 5
_SIZE = Struct(">i")


def _frame(size: int) -> bytes:
    """A request of `size` bytes: api key 18, version 0, a correlation id, and zeros."""
    return _SIZE.pack(size) + bytes((0, 18, 0, 0)) + bytes(size - 4)


# Size of the request, the part of it in the answer (which begins with the correlation id, as the generator expects), and the bytes of a
# file behind it. The bare server reads the file and writes the bytes; the network floor sends regions.
LOADS = {
    "echo of 100 B": (100, slice(4, None), 0),
    "16 KiB, answered with 60 B": (16 * 1024, slice(4, 64), 0),
    "echo of 16 KiB": (16 * 1024, slice(4, None), 0),
    "1 MiB, answered with 60 B": (1024 * 1024, slice(4, 64), 0),
    "8 KiB of a file": (100, slice(4, 64), 8 * 1024),
    "64 KiB of a file": (100, slice(4, 64), 64 * 1024),
    "1 MiB of a file": (100, slice(4, 64), 1024 * 1024),
}


class Bare(asyncio.BufferedProtocol):
    """Frames and nothing else."""

    buffer = bytearray(256 * 1024)
    view = memoryview(buffer)

    def __init__(self, part: slice, region: FileRegion | None) -> None:
        self.part = part
        self.region = region
        self.rest = b""
        self.large: bytearray | None = None
        self.filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its type

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.large is not None:
            return memoryview(self.large)[self.filled :]
        if not self.rest:
            return self.view
        kept = len(self.rest)
        self.view[:kept] = self.rest
        return self.view[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        if self.large is not None:
            self.filled += nbytes
            if self.filled < len(self.large):
                return
            view, end = memoryview(self.large), self.filled
            self.large = None
        else:
            view, end = self.view, len(self.rest) + nbytes
        position = 0
        out: list[bytes] = []
        part = self.part
        while end - position >= 4:
            after = position + 4 + _SIZE.unpack_from(view, position)[0]
            if after > end:
                break
            answer = bytes(view[position + 4 : after][part])
            if self.region is not None:
                answer += self.region.read()
            out += (_SIZE.pack(len(answer)), answer)
            position = after
        self.rest = bytes(view[position:end])
        if len(self.rest) >= 4:
            size = 4 + _SIZE.unpack_from(self.rest)[0]
            if size > len(self.view):
                self.large = bytearray(size)
                self.filled = len(self.rest)
                self.large[: self.filled] = self.rest
                self.rest = b""
        if out:
            self.transport.write(b"".join(out))


async def _serve_bare(part: slice, region: FileRegion | None) -> int:
    server = await asyncio.get_running_loop().create_server(lambda: Bare(part, region), "127.0.0.1", 0, backlog=4096)
    return int(server.sockets[0].getsockname()[1])


class Echo(RequestHandler):
    """Answers with a part of the request, or of a file behind it."""

    def __init__(self, part: slice, region: FileRegion | None) -> None:
        self.part = part
        self.region = region

    def handle(self, frame: memoryview, connection: Connection) -> Answer:
        return bytes(frame[self.part]) if self.region is None else [bytes(frame[self.part]), self.region]


async def _serve_network(part: slice, region: FileRegion | None) -> int:
    # The system's socket buffers, as the bare server has them.
    limits = NetworkLimits(socket_listen_backlog_size=4096, socket_receive_buffer_bytes=-1, socket_send_buffer_bytes=-1)
    server = SocketServer(limits)
    await server.start([EndPoint("PLAINTEXT", "127.0.0.1", 0, SecurityProtocol.PLAINTEXT)], Echo(part, region))
    return server.bound["PLAINTEXT"].port


KINDS = {"bare": _serve_bare, "network": _serve_network}


def _serve(kind: str, load: str) -> None:
    _, part, length = LOADS[load]

    async def main(region: FileRegion | None) -> None:
        print(await KINDS[kind](part, region), flush=True)
        await asyncio.to_thread(sys.stdin.read)

    if not length:
        uvloop.run(main(None))
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(length))
        file.flush()
        uvloop.run(main(FileRegion(RealFileSystem().open(file.name, read_only=True), 0, length)))


class Served:
    """A server in its own process, until the `with` ends."""

    def __init__(self, kind: str, load: str, cpu: int | None) -> None:
        command = [sys.executable, "-m", "benchmarks.paths.network", "--serve", kind, load]
        with pinned_to(cpu):
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def measure(
    load: str, turns: int, seconds: float, cpus: tuple[int | None, int | None], connections: int, in_flight: int
) -> dict[str, float]:
    """Processor µs per request of every kind, and of the bare one in the kernel: the medians of the turns."""
    frames = [_frame(LOADS[load][0])] * connections
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    in_kernel: list[float] = []
    for _ in range(turns):
        for kind, costs in found.items():
            with Served(kind, load, cpus[0]) as served:
                probe = partial(cpu_s, served.process.pid)
                sent = Load(frames, connections, in_flight, warm_up_s=0.3, duration_s=seconds, discard_bodies=LOADS[load][2] > 0)
                user_before, system_before = _ticks(served.process.pid)
                result = run_load("127.0.0.1", served.port, sent, pin_cpu=cpus[1], probe=probe)
                user, system = _ticks(served.process.pid)
                costs.append(result.broker_cpu_s / result.answered * 1e6)
            if kind == "bare":
                in_kernel.append(costs[-1] * (system - system_before) / (user + system - user_before - system_before))
    return {kind: statistics.median(costs) for kind, costs in found.items()} | {"kernel": statistics.median(in_kernel)}


def _ticks(pid: int) -> tuple[int, int]:
    """The user and the system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]), int(fields[12])


def idle_bytes(kind: str, count: int) -> float:
    """Resident bytes of the server per connection that sent one request and is idle."""
    with Served(kind, "echo of 100 B", None) as served:
        request = _frame(100)
        warm = socket.create_connection(("127.0.0.1", served.port))
        warm.sendall(request)
        warm.recv(200)
        before = resident_bytes(served.process.pid)
        peers = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(count)]
        for peer in peers:
            peer.sendall(request)
            peer.recv(200)
        time.sleep(0.2)
        after = resident_bytes(served.process.pid)
        for peer in (warm, *peers):
            peer.close()
    return (after - before) / count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="requests of each connection that wait for their answers")
    parser.add_argument("--cpu", help="SERVER,GENERATOR: bind them to these cores")
    parser.add_argument("--only", default="", help="run only the loads whose name contains this")
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "LOAD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(*options.serve)
        return
    cpus: tuple[int | None, int | None] = (None, None)
    if options.cpu:
        server, generator = options.cpu.split(",")
        cpus = (int(server), int(generator))
    print(f"{'processor µs per request':<30}{'kernel':>9}{'bare':>9}{'network':>9}{'ratio':>8}")
    for load in (name for name in LOADS if options.only in name):
        costs = measure(load, options.turns, options.seconds, cpus, options.connections, options.in_flight)
        shown = "".join(f"{costs[kind]:>9.2f}" for kind in ("kernel", *KINDS))
        print(f"{load:<30}{shown}{costs['network'] / costs['bare']:>8.2f}", flush=True)
    if options.idle:
        bare, network = (idle_bytes(kind, options.idle) for kind in KINDS)
        print(f"{'bytes per idle connection':<30}{bare:>9.0f}{network:>9.0f}{network / bare:>8.2f}")


if __name__ == "__main__":
    main()
