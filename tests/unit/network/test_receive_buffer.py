"""The kernel's receive buffer grows with the large frames of a connection, where nobody chose its size."""

import socket
import struct
from typing import Any, cast

import pytest

from ottla.broker.network.host_names import HostNames
from ottla.broker.network.limits import RECEIVE_BUFFER_BYTES, NetworkLimits, limits_of
from ottla.broker.network.receive_buffer import LARGEST_BYTES, may_grow, set_receive_buffer
from ottla.config.broker import BrokerConfig
from tests.support.network import Bench, Client, framed

KB = 1024


class FakeSocket:
    """Records the sizes it is given."""

    def __init__(self, *, fails: bool = False) -> None:
        self.sizes: list[int] = []
        self.windows: list[int] = []
        self._fails = fails

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if self._fails:
            raise OSError
        if (level, option) == (socket.SOL_SOCKET, socket.SO_RCVBUF):
            self.sizes.append(value)
        else:
            assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP)
            self.windows.append(value)


def connected(bench: Bench, sock: FakeSocket) -> Client:
    client = bench.connect()
    client.connection.grow_with_frames(cast("Any", sock))
    return client


def a_frame(size: int) -> bytes:
    """A frame that has `size` bytes with its length."""
    return framed(bytes([7]) * (size - 4))


@pytest.mark.parametrize(
    ("size", "grown"),
    [
        (10, []),
        (RECEIVE_BUFFER_BYTES, []),
        (RECEIVE_BUFFER_BYTES + 1, [512 * KB]),
        (512 * KB, [512 * KB]),
        (512 * KB + 1, [LARGEST_BYTES]),
        (1_048_576 + 90, [LARGEST_BYTES]),
        (5_000_000, [LARGEST_BYTES]),
    ],
)
def test_it_grows_to_what_a_frame_needs_that_the_shared_buffer_does_not_hold(size: int, grown: list[int]) -> None:
    bench, sock = Bench(), FakeSocket()
    client = connected(bench, sock)
    for _ in range(3):
        client.send_all(a_frame(size))
    assert sock.sizes == sock.windows == grown
    assert len(bench.handled) == 3


def test_it_never_shrinks_and_grows_twice_at_most() -> None:
    bench, sock = Bench(), FakeSocket()
    client = connected(bench, sock)
    for size in (300, 1, 400, 512, 300, 513, 600, 1024, 300, 3000):
        client.send_all(a_frame(size * KB))
    assert sock.sizes == [512 * KB, LARGEST_BYTES]


def test_many_small_frames_in_one_read_are_none_that_is_large() -> None:
    bench, sock = Bench(), FakeSocket()
    client = connected(bench, sock)
    client.send_all(a_frame(10 * KB) * 100)
    assert sock.sizes == []
    assert len(bench.handled) == 100


def test_a_length_alone_grows_nothing() -> None:
    bench, sock = Bench(), FakeSocket()
    client = connected(bench, sock)
    client.send(a_frame(1024 * KB)[: 60 * KB])
    assert sock.sizes == []


def test_it_grows_once_the_frame_has_room_among_those_of_all_connections() -> None:
    bench, sock = Bench(limits=NetworkLimits(queued_max_request_bytes=1024 * KB)), FakeSocket()
    first = bench.connect()
    first.send(a_frame(600 * KB)[:-1])
    second = connected(bench, sock)
    frame = a_frame(700 * KB)
    taken = second.send(frame)
    assert sock.sizes == []
    first.connection.connection_lost(None)
    bench.turns.run()
    assert sock.sizes == [LARGEST_BYTES]
    second.send_all(frame[taken:])
    assert bench.handled == [frame[4:]]


def test_it_grows_for_what_brokers_ask_of_each_other() -> None:
    bench, sock = Bench(), FakeSocket()
    connected(bench, sock).send_all(framed(struct.pack(">h", 4) + bytes(300 * KB)))  # LeaderAndIsr
    assert sock.sizes == [512 * KB]


def test_a_kernel_that_refuses_costs_nobody_a_request() -> None:
    bench = Bench()
    client = connected(bench, FakeSocket(fails=True))
    client.send_all(a_frame(700 * KB))
    assert client.answers == [a_frame(700 * KB)[4:]]


def test_a_connection_that_is_gone_keeps_no_socket() -> None:
    bench = Bench()
    client = connected(bench, FakeSocket())
    client.connection.connection_lost(None)
    assert client.connection._reader.growing is None


def test_a_closed_socket_is_no_error() -> None:
    sock = socket.socket()
    sock.close()
    set_receive_buffer(sock, 1000)


@pytest.mark.parametrize(
    ("properties", "size", "grows"),
    [
        ({}, 102_400, True),
        ({"socket.receive.buffer.bytes": "102400"}, 102_400, False),
        ({"socket.receive.buffer.bytes": "2000000"}, 2_000_000, False),
        ({"socket.receive.buffer.bytes": "-1"}, -1, False),
    ],
)
def test_who_sets_a_size_has_it(properties: dict[str, str], size: int, grows: bool) -> None:
    limits = limits_of(BrokerConfig(properties), HostNames())
    assert limits.socket_receive_buffer_bytes == size
    assert may_grow(limits) == grows


def test_the_size_of_the_kernel_does_not_grow() -> None:
    assert not may_grow(NetworkLimits(socket_receive_buffer_bytes=-1))
