"""A broker with more logs than it may open files: answers that wait for their clients leave files to the others."""

import socket
import struct
from pathlib import Path

import pytest

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import iter_batches
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.serve_command import serving
from tests.support.wire_client import WireClient, a_wire_client

LIMIT = 128
PARTITIONS = 200
VALUE_BYTES = 70_000
SILENT = 5
"""Clients that do not read their answers."""
VERSION = 11


def produce(client: WireClient) -> None:
    batch = bytes(a_batch(1, value_bytes=VALUE_BYTES))
    data = [PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS)]
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name="topic", partition_data=data)])
    answered = client.ask(request, 7).responses[0].partition_responses
    assert {each.error_code for each in answered} == {0}


def a_fetch(offsets: dict[int, int]) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index, offset in offsets.items()]
    return FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic="topic", partitions=wanted)])


def a_silent_client(port: int) -> socket.socket:
    """One that asks for all records and reads nothing."""
    header = RequestHeader(request_api_key=1, request_api_version=VERSION, correlation_id=1, client_id="silent")
    frame = header.encode(1) + a_fetch(dict.fromkeys(range(PARTITIONS), 0)).encode(VERSION)
    silent = socket.create_connection(("127.0.0.1", port), 10)
    silent.sendall(struct.pack(">i", len(frame)) + frame)
    return silent


def read_all(client: WireClient, ends: dict[int, int]) -> None:
    """Fetches from the start of each partition to its end. Raises TimeoutError by the client if an answer is missing."""
    offsets = dict.fromkeys(ends, 0)
    while offsets:
        (topic,) = client.ask(a_fetch(offsets), VERSION).responses
        for each in topic.partitions:
            assert each.error_code == 0
            for _, header in iter_batches(bytes(each.records or b"")):
                offsets[each.partition_index] = header.next_offset
        offsets = {index: offset for index, offset in offsets.items() if offset < ends[index]}


@pytest.mark.slow
def test_answers_that_clients_do_not_read_leave_files_to_the_others(tmp_path: Path) -> None:
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / 'data'}"]
    with serving(tmp_path, *settings, script=f'ulimit -n {LIMIT}; exec "$@"') as broker, a_wire_client(broker.ports[0]) as client:
        created = CreatableTopic(name="topic", num_partitions=PARTITIONS, replication_factor=1)
        assert client.ask(CreateTopicsRequest(topics=[created], timeout_ms=60_000), 5).topics[0].error_code == 0
        produce(client)
        silent = [a_silent_client(broker.ports[0]) for _ in range(SILENT)]
        eventually(lambda: "most of the permitted files are open" in broker.log(), what="the shortage")
        with a_wire_client(broker.ports[0]) as newcomer:
            read_all(newcomer, dict.fromkeys(range(PARTITIONS), 1))
        produce(client)
        for each in silent:
            each.close()
        read_all(client, dict.fromkeys(range(PARTITIONS), 2))
        assert "offline" not in broker.log()
        assert "cannot accept" not in broker.log()
