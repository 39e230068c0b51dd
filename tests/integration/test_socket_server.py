"""The network floor over real sockets, on uvloop (production) and on asyncio's own loop."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.request_channel import Answer, Pending
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.network import other
from tests.support.peers import LOOPS, Peer, Scenario, run_on, serving, until

MiB = 1024 * 1024


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return run_on(request.param)


def test_requests_of_all_sizes_are_answered_in_order(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as server:
            peer = await Peer.connect(server)
            bodies = [other(bytes([i % 256]) * size) for i, size in enumerate((0, 1, 100, 20_000, 300_000, 1_100_000, 5, 3_000_000, 7))]
            peer.send(*bodies)
            assert [await peer.receive() for _ in bodies] == bodies
            peer.close()
            await until(lambda: not server.connections())

    run(scenario)


def test_pendings_that_complete_out_of_order_are_answered_in_order(run: Callable[[Scenario], None]) -> None:
    pendings: list[Pending] = []

    def handler(frame: memoryview, connection: object) -> Answer:
        pendings.append(Pending(appended=True))
        return pendings[-1]

    async def scenario() -> None:
        async with serving(handler) as server:
            peer = await Peer.connect(server)
            peer.send(*[b"\x00\x00"] * 20)
            await until(lambda: len(pendings) == 20)
            for i in reversed(range(20)):
                pendings[i].complete(b"%d" % i)
            assert [await peer.receive() for _ in range(20)] == [b"%d" % i for i in range(20)]

    run(scenario)
    pendings.clear()


def test_a_connection_knows_who_is_at_its_other_end(run: Callable[[Scenario], None]) -> None:
    infos = []

    def handler(frame: memoryview, connection: object) -> Answer:
        infos.append(connection.client)
        return b""

    async def scenario() -> None:
        async with serving(handler) as server:
            peer = await Peer.connect(server)
            peer.send(b"x")
            await peer.receive()
            host, port = peer.writer.get_extra_info("sockname")
            info = infos[0]
            assert (info.client_host, info.client_port, info.listener_name, info.security_protocol) == (
                host,
                port,
                "PLAINTEXT",
                "PLAINTEXT",
            )
            assert info.connection_id == f"127.0.0.1:{server.bound['PLAINTEXT'].port}-127.0.0.1:{port}-0"
            assert str(info.principal) == "User:ANONYMOUS"

    run(scenario)


def a_file(tmp_path: Path, size: int) -> tuple[bytes, Callable[[int, int], FileRegion]]:
    """A file of bytes that do not repeat, and regions of it."""
    data = random.Random(size).randbytes(size)
    path = tmp_path / "segment.log"
    path.write_bytes(data)
    file = RealFileSystem().open(str(path), read_only=True)
    return data, lambda position, length: FileRegion(file, position, length)


@pytest.mark.parametrize("reader_is_slow", [False, True])
def test_regions_of_files_arrive_whole_between_other_parts(run: Callable[[Scenario], None], tmp_path: Path, reader_is_slow: bool) -> None:
    data, region = a_file(tmp_path, 8 * MiB)
    slices = [(0, 100), (5, 16_384), (1000, 16_385), (0, 0), (77, 3 * MiB), (4 * MiB - 3, 4 * MiB + 3), (9, 1)]

    def handler(frame: memoryview, connection: object) -> Answer:
        if frame[1] == 1:
            return [b"head", *[part for at, size in slices for part in (region(at, size), b"<>")]]
        return bytes(frame)

    expected = b"head" + b"".join(data[at : at + size] + b"<>" for at, size in slices)

    async def scenario() -> None:
        async with serving(handler) as server:
            peer = await Peer.connect(server, SO_RCVBUF=8192 if reader_is_slow else MiB)
            requests = [b"\x00\x01", other(b"small"), b"\x00\x01", b"\x00\x01", other(b"end")]
            peer.send(*requests)
            if reader_is_slow:
                await asyncio.sleep(0.05)  # the socket fills up meanwhile
            for request in requests:
                assert await peer.receive() == (expected if request == b"\x00\x01" else request)

    run(scenario)


def test_a_region_behind_bytes_the_transport_still_holds_waits_for_them(run: Callable[[Scenario], None], tmp_path: Path) -> None:
    data, region = a_file(tmp_path, MiB)

    def handler(frame: memoryview, connection: object) -> Answer:
        return [b"h", region(0, MiB)] if frame[1] == 1 else bytes(4 * MiB)

    async def scenario() -> None:
        async with serving(handler) as server:
            peer = await Peer.connect(server, SO_RCVBUF=8192)
            peer.send(b"\x00\x02", b"\x00\x01", b"\x00\x02", b"\x00\x01")
            for _ in range(2):
                assert await peer.receive() == bytes(4 * MiB)
                assert await peer.receive() == b"h" + data

    run(scenario)


def test_a_client_that_leaves_in_the_middle_of_a_file_leaves_nothing_behind(run: Callable[[Scenario], None], tmp_path: Path) -> None:
    _, region = a_file(tmp_path, 8 * MiB)

    async def scenario() -> None:
        async with serving(lambda frame, connection: [b"h", region(0, 8 * MiB)]) as server:
            (await Peer.connect(server)).close()  # the first stream of a uvloop opens a descriptor that stays
            await until(lambda: not server.connections())
            before = len(os.listdir("/proc/self/fd"))
            peers = [await Peer.connect(server, SO_RCVBUF=8192) for _ in range(5)]
            for peer in peers:
                peer.send(b"\x00\x01", b"\x00\x01")
            for peer in peers:
                await peer.reader.readexactly(1000)
                peer.writer.transport.abort()
            await until(lambda: not server.connections())
            await until(lambda: len(os.listdir("/proc/self/fd")) <= before)

    run(scenario)


def test_a_file_shorter_than_its_region_closes_the_connection_with_one_line(
    run: Callable[[Scenario], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, region = a_file(tmp_path, MiB)
    caplog.set_level("INFO", "ottla.broker.network")

    async def scenario() -> None:
        async with serving(lambda frame, connection: [b"h", region(0, 2 * MiB)]) as server:
            peer = await Peer.connect(server)
            peer.send(b"\x00\x01")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await peer.receive()

    run(scenario)
    assert [("shorter" in record.message, record.exc_info) for record in caplog.records] == [(True, None)]


def test_a_slow_reader_of_a_file_does_not_hold_up_others(run: Callable[[Scenario], None], tmp_path: Path) -> None:
    _, region = a_file(tmp_path, 8 * MiB)

    def handler(frame: memoryview, connection: object) -> Answer:
        return [b"h", region(0, 8 * MiB)] if frame[1] == 1 else bytes(frame)

    async def scenario() -> None:
        async with serving(handler, NetworkLimits(num_network_threads=1)) as server:
            slow = await Peer.connect(server, SO_RCVBUF=8192)
            slow.send(b"\x00\x01")
            await slow.reader.readexactly(100)
            quick = await Peer.connect(server)
            for i in range(100):
                quick.send(other(b"%d" % i))
                assert await quick.receive() == other(b"%d" % i)

    run(scenario)
