"""A broker at its limit of open files: clients alone take no log directory offline, and disturb no other client."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.serve_command import serving
from tests.support.wire_client import WireClient, a_wire_client

LIMIT = 256
PARTITIONS = 300
VALUE_BYTES = 200_000
SEGMENT_BYTES = 300_000
"""A segment has one batch, so each append rolls."""
ROUNDS = 2


def create(client: WireClient, name: str, partitions: int) -> None:
    configs = [CreatableTopicConfig(name="segment.bytes", value=str(SEGMENT_BYTES))]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5).topics[0].error_code == 0


def produce(client: WireClient, name: str, partitions: int) -> set[int]:
    batch = bytes(a_batch(1, value_bytes=VALUE_BYTES))
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name=name, partition_data=data)])
    return {each.error_code for each in client.ask(request, 7).responses[0].partition_responses}


def look_up(client: WireClient, name: str, partitions: int) -> set[int]:
    """The codes of searches in all partitions: by time, by epoch."""
    by_time = [ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=1) for index in range(partitions)]
    found = client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=by_time)]), 5)
    by_epoch = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(partitions)]
    ends = client.ask(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=by_epoch)]), 2)
    return {each.error_code for each in (*found.topics[0].partitions, *ends.topics[0].partitions)}


def delete_records(client: WireClient, name: str, partitions: int, offset: int) -> set[int]:
    wanted = [DeleteRecordsPartition(partition_index=index, offset=offset) for index in range(partitions)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=wanted)], timeout_ms=60_000)
    return {each.error_code for each in client.ask(request, 1).topics[0].partitions}


def a_fetch_frame(name: str, partitions: range) -> bytes:
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in partitions]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic=name, partitions=wanted)])
    header = RequestHeader(request_api_key=1, request_api_version=11, correlation_id=1, client_id="silent")
    frame = header.encode(1) + request.encode(11)
    return struct.pack(">i", len(frame)) + frame


@contextmanager
def a_crowd(port: int, count: int, frames: list[bytes]) -> Iterator[list[socket.socket]]:
    """So many connections, each of which sends a frame and reads nothing. Later ones stay in the backlog."""
    with ExitStack() as stack:
        crowd = []
        for number in range(count):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(10)
            sock.connect(("127.0.0.1", port))
            crowd.append(stack.enter_context(sock))
            if frames:
                sock.sendall(frames[number % len(frames)])
        yield crowd


@pytest.mark.slow
def test_clients_alone_take_no_log_directory_offline(tmp_path: Path) -> None:
    settings = [
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={tmp_path / 'data'}",
        "socket.listen.backlog.size=2000",
        "log.retention.ms=-1",
    ]
    narrow = "socket.send.buffer.bytes=4096"
    with serving(tmp_path, *settings, narrow, script=f'ulimit -n {LIMIT}; exec "$@"') as broker, a_wire_client(broker.ports[0]) as honest:
        create(honest, "mine", 3)
        create(honest, "topic", PARTITIONS)
        assert produce(honest, "topic", PARTITIONS) == {0}
        frames = [a_fetch_frame("topic", range(first, first + 10)) for first in range(0, PARTITIONS, 10)]
        with a_wire_client(broker.ports[0]) as hostile, a_crowd(broker.ports[0], LIMIT, frames):
            eventually(lambda: "cannot accept" in broker.log(), what="the end of free descriptors")
            for number in range(ROUNDS):
                assert produce(hostile, "topic", PARTITIONS) == {0}
                assert look_up(hostile, "topic", PARTITIONS) == {0}
                assert delete_records(hostile, "topic", PARTITIONS, number) == {0}
                create(hostile, f"more-{number}", 50)
                assert produce(honest, "mine", 3) == {0}
        assert produce(honest, "topic", PARTITIONS) == {0}
        assert "offline" not in broker.log()
        assert "Traceback" not in broker.log()
        assert broker.end() == 0
