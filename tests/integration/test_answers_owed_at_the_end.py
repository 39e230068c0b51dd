"""A broker that stops has answered what it appended, also to a client that has sent more and reads late."""

import signal
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import a_batch
from tests.support.broker_process import a_broker, eventually
from tests.support.clients import ConfluentClient
from tests.support.segment_files import batch_headers

REQUESTS = 20_000
VERSION = 11


def a_produce(number: int) -> bytes:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(a_batch(1)))])]
    header = RequestHeader(request_api_key=0, request_api_version=VERSION, correlation_id=number, client_id="late")
    body = header.encode(2) + ProduceRequest(acks=1, timeout_ms=3000, topic_data=data).encode(VERSION)
    return struct.pack(">i", len(body)) + body


def answered(received: bytes) -> list[int]:
    """The correlation ids of whole answers."""
    found, at = [], 0
    while at + 8 <= len(received):
        size, correlation_id = struct.unpack_from(">ii", received, at)
        at += 4 + size
        if at <= len(received):
            found.append(correlation_id)
    return found


def test_everything_that_was_appended_is_answered_though_more_requests_lie_unread(tmp_path: Path) -> None:
    frames = memoryview(b"".join(map(a_produce, range(REQUESTS))))
    with a_broker(tmp_path, num_partitions=1) as broker, socket.socket() as client:
        ConfluentClient(broker.bootstrap).create_topic("t")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
        client.connect(("127.0.0.1", broker.port))
        client.setblocking(False)
        sent = 0
        deadline = time.monotonic() + 2
        # The broker stops reading when nobody takes its answers; what it has not read lies in the kernel.
        while sent < len(frames) and time.monotonic() < deadline:
            with suppress(BlockingIOError):
                sent += client.send(frames[sent : sent + (1 << 16)])
        eventually(lambda: sum(1 for _ in batch_headers(broker.data / "t-0")) > 100)
        broker.signal(signal.SIGTERM)
        eventually(lambda: " stops (ottla.broker.server)" in broker.log_file.read_text(encoding="utf-8"))
        client.settimeout(30)
        received = bytearray()
        with suppress(ConnectionResetError):  # what it had sent beside was never read
            while data := client.recv(1 << 16):
                received += data
        assert broker.wait() == 0
        appended = sum(1 for _ in batch_headers(broker.data / "t-0"))
        assert 100 < appended < REQUESTS
        assert answered(bytes(received)) == list(range(appended))
