"""What the kernel keeps for a connection before the broker reads it, as the socket in the broker says."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ottla.broker.network.connection import Connection
from ottla.broker.network.receive_buffer import LARGEST_BYTES
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import a_batch
from tests.support.clients import ConfluentClient
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the rules are those of Linux")

DEFAULT = 102_400
METADATA_VERSION = 9
PRODUCE_VERSION = 9


def granted(size: int) -> int:
    """What the kernel gives who asks for `size`: not more than its own limit, and twice that, for its own bookkeeping."""
    return 2 * min(size, int(Path("/proc/sys/net/core/rmem_max").read_text(encoding="ascii")))


def buffer_of(broker: InProcessBroker, client: WireClient) -> int:
    return int(sock_of(broker, client).getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))


def largest_window_of(broker: InProcessBroker, client: WireClient) -> int:
    """What the connection can offer at most, as its handshake left it."""
    info = sock_of(broker, client).getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    return 65535 << (info[6] >> 4)


def sock_of(broker: InProcessBroker, client: WireClient) -> socket.socket:
    sock = connection_of(broker, client)._writer.sock
    assert sock is not None
    return sock


def connection_of(broker: InProcessBroker, client: WireClient) -> Connection:
    """The broker's end."""
    _, port = client._socket.getsockname()
    connections: list[Connection] = broker.run(broker.broker.socket_server.connections)
    (found,) = (each for each in connections if each.client.client_port == port)
    return found


def ask_for_metadata(client: WireClient) -> None:
    client.ask(MetadataRequest(topics=[]), METADATA_VERSION)


def produce(client: WireClient, size: int) -> None:
    """A request of a little more than `size` bytes."""
    data = PartitionProduceData(index=0, records=bytes(a_batch(1, value_bytes=size)))
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    answer = client.ask(request, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, num_partitions=1, **getattr(request, "param", {})) as started:
        ConfluentClient(started.bootstrap).create_topic("t")
        yield started


def test_it_grows_on_a_connection_with_large_requests_and_on_no_other(broker: InProcessBroker) -> None:
    with a_wire_client(broker.port) as large, a_wire_client(broker.port) as small, a_wire_client(broker.port) as idle:
        for client in (large, small, idle):
            ask_for_metadata(client)
            assert buffer_of(broker, client) == granted(DEFAULT)
            assert largest_window_of(broker, client) >= LARGEST_BYTES
        for _ in range(20):
            produce(small, 16 * 1024)
        produce(large, 1_000_000)
        assert buffer_of(broker, large) == granted(LARGEST_BYTES)
        assert sock_of(broker, large).getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP) >= granted(LARGEST_BYTES) // 2
        produce(large, 1_000_000)
        assert buffer_of(broker, small) == buffer_of(broker, idle) == granted(DEFAULT)


@pytest.mark.parametrize("broker", [{"socket_receive_buffer_bytes": size} for size in (50_000, DEFAULT, 200_000)], indirect=True)
def test_the_size_that_somebody_chose_stays(broker: InProcessBroker) -> None:
    chosen = int(broker.config.static["socket.receive.buffer.bytes"])
    with a_wire_client(broker.port) as client:
        ask_for_metadata(client)
        assert largest_window_of(broker, client) >= chosen
        produce(client, 1_000_000)
        assert buffer_of(broker, client) == granted(chosen)


@pytest.mark.parametrize("broker", [{"socket_receive_buffer_bytes": -1}], indirect=True)
def test_the_kernel_tunes_by_itself_if_it_is_asked_to(broker: InProcessBroker) -> None:
    with a_wire_client(broker.port) as client:
        ask_for_metadata(client)
        assert connection_of(broker, client)._reader.growing is None
        with (
            closing(socket.create_server(("127.0.0.1", 0))) as untouched,
            closing(socket.create_connection(untouched.getsockname())),
            closing(untouched.accept()[0]) as accepted,
        ):
            assert buffer_of(broker, client) == accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        produce(client, 1_000_000)
