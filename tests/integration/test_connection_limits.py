"""Limits of connections, idle expiry, draining and rebinding over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network import acceptor
from ottla.broker.network.acceptor import BindFailed, counted_host, shown_host
from ottla.broker.network.connection_quotas import IP_BURST_SECONDS
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.request_channel import Answer, Pending
from ottla.broker.network.socket_server import SocketServer
from ottla.config.listeners import EndPoint, SecurityProtocol
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.network import FunctionHandler, framed, other
from tests.support.peers import LOOPS, Peer, Scenario, echo, endpoint, run_on, serving, until


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return run_on(request.param)


async def answers(peer: Peer) -> bool:
    peer.send(other(b"ping"))
    return await peer.receive() == other(b"ping")


def test_a_thousand_connections_are_dealt_evenly_and_all_are_answered(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, NetworkLimits(num_network_threads=4, socket_listen_backlog_size=1000)) as server:
            peers = [await Peer.connect(server) for _ in range(1000)]
            for peer in peers:
                peer.send(other())
            for peer in peers:
                assert await peer.receive() == other()
            assert [len(processor.connections) for processor in server.processors] == [250] * 4

    run(scenario)


def test_a_client_with_a_link_local_address_is_counted_without_its_interface_and_shown_with_it(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def link_local(address: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("fe80::1", address[1], 0, 2)

    async def scenario() -> None:
        async with serving(echo, NetworkLimits(max_connections_per_ip=1)) as server:
            for _ in range(3):
                peer = await Peer.connect(server)
                assert await answers(peer)
                (connection,) = (each for processor in server.processors for each in processor.connections)
                assert (connection.client.client_host, connection.client.java_host) == ("fe80::1%2", "fe80:0:0:0:0:0:0:1%2")
                peer.close()
                await until(lambda: server.quotas.total == 0)

    monkeypatch.setattr(acceptor, "shown_host", lambda address: shown_host(link_local(address)))
    monkeypatch.setattr(acceptor, "counted_host", lambda address: counted_host(link_local(address)))
    run(scenario)


def test_a_connection_beyond_max_connections_waits_until_another_closes(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, NetworkLimits(max_connections=2)) as server:
            first, second, third = [await Peer.connect(server) for _ in range(3)]
            assert await answers(first)
            assert await answers(second)
            third.send(other(b"ping"))
            for _ in range(3):
                assert await answers(first)
            assert server.quotas.total == 2
            first.close()
            assert await third.receive() == other(b"ping")

    run(scenario)


def test_a_higher_limit_lets_those_in_that_wait(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, NetworkLimits(max_connections=1)) as server:
            first, second = [await Peer.connect(server) for _ in range(2)]
            assert await answers(first)
            server.apply(NetworkLimits(max_connections=2))
            assert await answers(second)

    run(scenario)


def test_the_inter_broker_listener_takes_the_place_of_the_most_idle_client(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, NetworkLimits(max_connections=2), "INTERNAL", "EXTERNAL") as server:
            idle, active = await Peer.connect(server, "EXTERNAL"), await Peer.connect(server, "EXTERNAL")
            assert await answers(idle)
            assert await answers(active)
            broker = await Peer.connect(server, "INTERNAL")
            assert await answers(broker)
            assert await idle.is_closed()
            assert await answers(active)

    run(scenario)


def test_connections_that_the_inter_broker_listener_accepts_together_each_take_the_place_of_a_client(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario() -> None:
        async with serving(echo, NetworkLimits(max_connections=3), "INTERNAL", "EXTERNAL") as server:
            clients = [await Peer.connect(server, "EXTERNAL") for _ in range(3)]
            for client in clients:
                assert await answers(client)
            address = ("127.0.0.1", server.bound["INTERNAL"].port)
            with socket.create_connection(address), socket.create_connection(address):  # before the loop accepts one
                assert await clients[0].is_closed()
                assert await clients[1].is_closed()
                assert await answers(clients[2])

    run(scenario)


def test_an_address_with_too_many_connections_is_turned_away_with_a_line(
    run: Callable[[Scenario], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        limits = NetworkLimits(max_connections_per_ip=5, max_connections_per_ip_overrides={"127.0.0.1": 1})
        async with serving(echo, limits) as server:
            first = await Peer.connect(server)
            assert await answers(first)
            second = await Peer.connect(server)
            assert await second.is_closed()
            assert await answers(first)

    run(scenario)
    assert [record.message for record in caplog.records] == [
        "rejected a connection from 127.0.0.1 on listener PLAINTEXT: the address already has the configured maximum of 1 connections"
    ]


def test_connections_beyond_the_creation_rate_are_late_but_served(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, NetworkLimits(max_connection_creation_rate=2)) as server:
            peers = [await Peer.connect(server) for _ in range(6)]
            for peer in peers:
                assert await answers(peer)
            (acceptor,) = server.acceptors
            assert acceptor.throttles.average(asyncio.get_running_loop().time()) > 0

    run(scenario)


def test_an_address_that_used_up_its_rate_is_turned_away_after_a_moment(
    run: Callable[[Scenario], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(echo) as server:
            server.quotas.set_ip_rate("127.0.0.1", 1)
            peers = [await Peer.connect(server) for _ in range(IP_BURST_SECONDS)]
            early = await Peer.connect(server)
            assert await early.is_closed()
            for peer in peers:
                assert await answers(peer)
            server.quotas.set_ip_rate("127.0.0.1", None)
            assert await answers(await Peer.connect(server))
            assert server.quotas.total == IP_BURST_SECONDS + 1

    run(scenario)
    assert [record.message for record in caplog.records] == [
        "rejected a connection from 127.0.0.1 on listener PLAINTEXT: connection_creation_rate is used up"
    ]


def test_an_idle_connection_is_closed_and_an_active_one_is_not(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, NetworkLimits(connections_max_idle_ms=300)) as server:
            idle, active = await Peer.connect(server), await Peer.connect(server)
            assert await answers(idle)
            closed = asyncio.ensure_future(idle.is_closed())
            while not closed.done():
                assert await answers(active)
                await asyncio.sleep(0.01)
            assert closed.result()
            assert sum(processor.expired_connections for processor in server.processors) == 1

    run(scenario)


@pytest.mark.parametrize("limits", [{}, {"socket_send_buffer_bytes": 20_000, "socket_receive_buffer_bytes": 30_000}])
def test_connections_have_the_buffers_that_were_asked_for(run: Callable[[Scenario], None], limits: dict[str, int]) -> None:
    async def scenario() -> None:
        wanted = NetworkLimits(**limits)
        async with serving(echo, wanted) as server:
            peer = await Peer.connect(server)
            assert await answers(peer)
            (connection,) = (each for processor in server.processors for each in processor.connections)
            accepted = connection._writer.sock
            assert accepted is not None
            # Linux doubles what it is told, for its own bookkeeping.
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * wanted.socket_send_buffer_bytes
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * wanted.socket_receive_buffer_bytes

    run(scenario)


def test_draining_answers_what_is_owed_and_closes(run: Callable[[Scenario], None]) -> None:
    pendings: list[Pending] = []

    def handler(frame: memoryview, connection: object) -> Answer:
        pendings.append(Pending(occupies_slot=True))
        return pendings[-1]

    async def scenario() -> None:
        async with serving(handler) as server:
            busy, idle = await Peer.connect(server), await Peer.connect(server)
            busy.send(other(b"1"), other(b"2"))
            await until(lambda: len(pendings) == 1 and len(server.connections()) == 2)
            draining = asyncio.ensure_future(server.drain(30))
            assert await idle.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await Peer.connect(server)
            pendings[0].complete(b"done")
            assert await busy.receive() == b"done"
            assert await busy.is_closed()
            assert await draining
            assert len(pendings) == 1

    run(scenario)
    pendings.clear()


def test_draining_gives_up_on_what_never_completes(run: Callable[[Scenario], None]) -> None:
    closed: list[int] = []

    async def scenario() -> None:
        async with serving(lambda frame, connection: Pending(appended=True, on_closed=lambda: closed.append(1))) as server:
            peer = await Peer.connect(server)
            peer.send(other())
            await until(lambda: any(connection.busy for connection in server.connections()))
            assert not await server.drain(0.05)
            await server.close()
            assert await peer.is_closed()

    run(scenario)
    assert closed == [1]


@pytest.mark.parametrize("file", [False, True])
def test_draining_waits_for_who_reads_and_not_for_who_does_not(run: Callable[[Scenario], None], tmp_path: Path, file: bool) -> None:
    size = 1 << 25
    path = tmp_path / "records"
    path.write_bytes(bytes(size))
    with closing(RealFileSystem().open(str(path))) as records:

        async def scenario() -> None:
            async with serving(lambda frame, connection: [FileRegion(records, 0, size)] if file else bytes(size)) as server:
                reads, does_not = await Peer.connect(server), await Peer.connect(server)
                for peer in (reads, does_not):
                    peer.send(other())
                await until(lambda: sum(connection.undelivered > 0 for connection in server.connections()) == 2)
                draining = asyncio.ensure_future(server.drain(3600, 1))
                assert len(await reads.receive()) == size
                assert await draining

        run(scenario)


def test_fewer_processors_keep_their_connections_and_get_no_new_ones(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, NetworkLimits(num_network_threads=3)) as server:
            old = [await Peer.connect(server) for _ in range(3)]
            for peer in old:
                assert await answers(peer)
            server.apply(NetworkLimits(num_network_threads=1))
            new = [await Peer.connect(server) for _ in range(3)]
            for peer in (*old, *new):
                assert await answers(peer)
            assert [len(processor.connections) for processor in server.processors] == [4]

    run(scenario)


def test_a_listener_that_is_removed_closes_its_connections_only(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, None, "A", "B") as server:
            a, b = await Peer.connect(server, "A"), await Peer.connect(server, "B")
            assert await answers(a)
            assert await answers(b)
            server.remove_listener("A")
            assert await a.is_closed()
            await server.add_listener(endpoint("C"))
            assert await answers(await Peer.connect(server, "C"))
            assert await answers(b)

    run(scenario)


def test_a_server_that_stops_adds_no_listener(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, None, "A") as server:
            server.stop_accepting()
            with pytest.raises(ValueError, match="the broker stops"):
                await server.add_listener(endpoint("B"))
            assert list(server.bound) == ["A"]

    run(scenario)


def test_a_connection_that_is_being_opened_ends_with_its_listener(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(echo, None, "A", "B") as server:
            peer = await Peer.connect(server, "A")
            await until(lambda: server.quotas.total == 1)
            server.remove_listener("A")
            assert await peer.is_closed()
            await until(lambda: server.quotas.total == 0)

    run(scenario)


def test_a_port_that_is_taken_fails_with_the_address_and_binds_nothing(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            server = SocketServer(NetworkLimits())
            with pytest.raises(BindFailed, match=f"B://127.0.0.1:{port} cannot be bound"):
                await server.start([endpoint("A"), endpoint("B", port=port)], FunctionHandler(echo))
            assert server.bound == {}
            await server.close()

    run(scenario)


def test_a_tls_listener_without_a_context_is_refused(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        server = SocketServer(NetworkLimits())
        with pytest.raises(ValueError, match="no TLS context"):
            await server.start([EndPoint("S", "127.0.0.1", 0, SecurityProtocol.SSL)], FunctionHandler(echo))
        await server.close()

    run(scenario)


def test_all_interfaces_serve_ipv4_clients_under_their_ipv4_address(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        server = SocketServer(NetworkLimits())
        hosts = []

        def handler(frame: memoryview, connection: object) -> Answer:
            hosts.append(connection.client.client_host)
            return b""

        await server.start([endpoint(host="")], FunctionHandler(handler))
        peer = await Peer.connect(server)
        peer.send(other())
        await peer.receive()
        peer.close()
        await server.close()
        assert hosts == ["127.0.0.1"]

    run(scenario)


def test_servers_come_and_go_on_one_port_and_leave_nothing(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        port = 0
        for _ in range(5):
            server = SocketServer(NetworkLimits())
            await server.start([endpoint(port=port)], FunctionHandler(echo))
            port = server.bound["PLAINTEXT"].port
            peer = await Peer.connect(server)
            assert await answers(peer)
            peer.close()
            await server.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario)


def test_garbage_from_many_connections_leaves_the_server_serving(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as server:
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 1000, bytes(4), b"\x16\x03\x01\x02\x00"):
                peer = await Peer.connect(server)
                peer.writer.write(garbage)
                assert await peer.is_closed()
            half = await Peer.connect(server)
            half.writer.write(framed(other(b"cut"))[:-1])
            half.close()
            assert await answers(await Peer.connect(server))

    run(scenario)
