"""Garbage, lies, hurry and sloth: the broker lives, holds no memory for it, says little, and serves the others all the time.

`OTTLA_SOAK=1000000` sends that many damaged frames instead of the ordinary number.
"""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import a_batch
from tests.support.broker_process import STOP_SECONDS, BrokerProcess, a_broker, eventually
from tests.support.golden_replay import ask, decode, exchange, receive, request_frame
from tests.support.hostile import (
    ANSWER_SECONDS,
    GoodClient,
    a_good_client,
    complaints,
    create_topic,
    damaged,
    is_closed,
    many_open_files,
    open_files,
    recorded_requests,
    throw,
)
from tests.support.serve_command import serving
from tests.support.wire_client import a_wire_client

KiB = 1024
MiB = 1024 * KiB
DAMAGED_FRAMES = int(os.environ.get("OTTLA_SOAK", "8000"))
FRAMES_PER_CONNECTION = 8
BACKLOG = 4096
"""Kafka's default of 50 is full in no time when a test connects in a loop, and each connection then waits for a second."""
LINES_PER_HOST = 7
"""Five offences, the word that more are only counted, and the count."""

API_VERSIONS = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for what takes no measure of it."""
    with a_hostile_world(tmp_path_factory.mktemp("shared")) as started:
        yield started


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of one test."""
    with a_hostile_world(tmp_path) as started:
        yield started


@contextmanager
def a_hostile_world(directory: Path, **config: object) -> Iterator[BrokerProcess]:
    """A broker with the topic of the good client. Whatever happens, it lives to the end and logs no stack trace.

    The good client's records are years old, and retention would take them away between its Produce and its Fetch.
    """
    with a_broker(
        directory,
        auto_create_topics_enable="false",
        log_retention_ms=-1,
        offsets_topic_num_partitions=1,
        socket_listen_backlog_size=BACKLOG,
        **config,
    ) as started:
        create_topic(started, GoodClient.TOPIC)
        yield started
        assert started.is_running or started.wait() == 0
    assert "Traceback" not in started.log_file.read_text(errors="replace")


def connect(broker: BrokerProcess) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", broker.port))
    connection.settimeout(ANSWER_SECONDS)
    return connection


def grown(broker: BrokerProcess, before: int) -> int:
    return broker.rss_bytes() - before


# -- what is no request ----------------------------------------------------------------------------------------------------


NO_REQUESTS = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
    "TLS": (bytes.fromhex("16030100a5010000a10303") + bytes(200), "TLS"),
    "garbage": (b"\xff" * 64, "does not speak the Kafka protocol"),
    "no length": (bytes(4), "empty request"),
    "too long": (struct.pack(">i", 104857601) + bytes(100), "socket.request.max.bytes"),
    "header that lies": (struct.pack(">ihhih", 12, ApiKey.METADATA, 1, 1, 32767) + b"ab", "client id"),
    "name that no answer could repeat": (
        struct.pack(">ihhihih", 20_016, ApiKey.METADATA, 1, 1, 0, 1, 20_000) + b"\xff" * 20_000,
        "name has 60000 bytes as UTF-8; strings have at most 32767",
    ),
    "array that lies": (struct.pack(">ihhih", 14, ApiKey.METADATA, 1, 1, 0) + b"\x7f\xff\xff\xff", "cannot be read"),
}


@pytest.mark.parametrize("kind", NO_REQUESTS)
def test_what_is_no_request_closes_the_connection_and_is_said_in_one_line(shared: BrokerProcess, kind: str) -> None:
    sent, said = NO_REQUESTS[kind]
    host = f"127.0.1.{[*NO_REQUESTS].index(kind) + 1}"
    with socket.create_connection(("127.0.0.1", shared.port), source_address=(host, 0)) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(sent)
        assert is_closed(connection)
    (line,) = [line for line in complaints(shared.log_file) if f"-{host}:" in line]
    assert said in line
    assert ask(shared.port, API_VERSIONS, 0).kind == "response"


def test_a_host_that_goes_on_is_only_counted(broker: BrokerProcess) -> None:
    for _ in range(200):
        throw(broker.port, b"\xff" * 64)
    assert 1 < len(complaints(broker.log_file)) <= LINES_PER_HOST


@pytest.mark.parametrize("name", ["x" * 250, "a/b", "..", "", "a\nb", "\u0000", "ü" * 100])
def test_odd_topic_names_are_refused_or_unknown(shared: BrokerProcess, name: str) -> None:
    topics = [MetadataRequestTopic(name=name)]
    answer = exchange(shared.port, MetadataRequest(topics=topics, allow_auto_topic_creation=True), ApiKey.METADATA, 9)
    assert answer.topics[0].error_code == 17
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=bytes(a_batch()))])
    produced = exchange(shared.port, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), ApiKey.PRODUCE, 9)
    assert produced.responses[0].partition_responses[0].error_code == 3
    assert not [path for path in shared.data.rglob("*") if "x" * 100 in path.name]


def test_a_topic_that_is_to_be_created_a_hundred_thousand_times_is_refused(shared: BrokerProcess) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="again", num_partitions=1, replication_factor=1)] * 100_000)
    answer = exchange(shared.port, request, ApiKey.CREATE_TOPICS, 7)
    assert {(topic.error_code, topic.error_message) for topic in answer.topics} == {(42, "Found multiple entries for this topic.")}


def test_an_error_about_a_name_that_is_as_long_as_a_string_can_be_is_said_in_fewer_words(shared: BrokerProcess) -> None:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="ü" * 16_383, count=2)], timeout_ms=1000)
    (result,) = exchange(shared.port, request, ApiKey.CREATE_PARTITIONS, 3).results
    assert result.error_code == 3
    assert result.error_message.startswith("The topic 'üüü")
    assert len(result.error_message) < 10_000


# -- many ------------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(7200 if DAMAGED_FRAMES > 100_000 else 120)
def test_damaged_frames_by_the_thousand_cost_nobody_anything(broker: BrokerProcess) -> None:
    frames = recorded_requests()
    random = Random(20240601)
    bursts = DAMAGED_FRAMES // FRAMES_PER_CONNECTION
    warm = 0
    with a_good_client(broker) as good:
        for burst in range(bursts):
            throw(broker.port, b"".join(damaged(frames, random) for _ in range(FRAMES_PER_CONNECTION)))
            assert good.failure is None
            if burst == bursts // 3:
                warm = broker.rss_bytes()
    assert good.answered > 10
    assert grown(broker, warm) < 24 * MiB
    windows = 2 + DAMAGED_FRAMES // 50_000
    assert len(complaints(broker.log_file)) <= LINES_PER_HOST * windows


def test_damaged_requests_of_those_with_authority_do_no_worse_than_they_say(broker: BrokerProcess) -> None:
    """They may depose the controller and make topics; the broker answers on, without a fault of its own."""
    frames = recorded_requests(with_authority=True)
    random = Random(20240602)
    for _ in range(1500):
        throw(broker.port, b"".join(damaged(frames, random) for _ in range(6)), patience_seconds=0.2)
    assert ask(broker.port, API_VERSIONS, 0).kind == "response"


def test_connections_that_come_and_go_leave_nothing(broker: BrokerProcess) -> None:
    files = open_files(broker.pid)
    with a_good_client(broker):
        for number in range(3000):
            connection = connect(broker)
            if number % 3 == 0:
                connection.sendall(API_VERSIONS[: number % 14])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", number % 2, 0))
            connection.close()
            if number == 1000:
                before = broker.rss_bytes()
    eventually(lambda: open_files(broker.pid) <= files + 2, what="the end of all connections")
    assert grown(broker, before) < 8 * MiB


def test_ten_thousand_idle_connections_are_cheap(tmp_path: Path) -> None:
    count = 10_000
    with many_open_files(count + 1000) as allowed:
        if not allowed:
            pytest.skip(f"the system does not allow {count + 1000} open files")
        with a_broker(tmp_path, socket_listen_backlog_size=BACKLOG) as broker:
            create_topic(broker, GoodClient.TOPIC)
            before = broker.rss_bytes()
            connections = []
            try:
                with a_good_client(broker):
                    connections.extend(connect(broker) for _ in range(count))
                    connections[-1].sendall(API_VERSIONS)
                    receive(connections[-1])
                    per_connection = grown(broker, before) / count
                    print(f"{per_connection:.0f} bytes for each of {count} idle connections")
                    assert per_connection < 6 * KiB
                    connections[count // 2].sendall(API_VERSIONS)
                    receive(connections[count // 2])
            finally:
                for connection in connections:
                    connection.close()


def test_more_connections_than_files_wait_and_leave_files_for_the_logs(tmp_path: Path) -> None:
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"socket.listen.backlog.size={BACKLOG}", "log.dirs=data"]
    often = "replica.high.watermark.checkpoint.interval.ms=50"
    checkpoint = tmp_path / "data" / "replication-offset-checkpoint"
    with serving(tmp_path, *settings, often, script='ulimit -n 96; exec "$@"') as broker:
        address = ("127.0.0.1", broker.ports[0])
        with a_wire_client(broker.ports[0]) as client, ExitStack() as others:
            waiting = [others.enter_context(socket.create_connection(address, ANSWER_SECONDS)) for _ in range(200)]
            eventually(lambda: "cannot accept" in broker.log())
            client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)], timeout_ms=60_000), 5)
            eventually(lambda: checkpoint.exists() and "t 2 0" in checkpoint.read_text())
            for connection in waiting[:-1]:
                connection.close()
            waiting[-1].sendall(API_VERSIONS)
            receive(waiting[-1])
        assert "offline" not in broker.log()
        assert broker.log().count("cannot accept") == broker.log().count("most of the permitted files") == 1
        assert broker.end() == 0


def test_requests_that_wait_for_weeks_stand_in_nobodys_way_and_do_not_hold_up_the_end(broker: BrokerProcess) -> None:
    """More of them than there are handler threads: topics on a broker that does not exist never get a leader."""
    connections = [connect(broker) for _ in range(20)]
    with a_good_client(broker):
        for number, connection in enumerate(connections):
            assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[77])
            topic = CreatableTopic(name=f"ghost-{number}", num_partitions=-1, replication_factor=-1, assignments=[assignment])
            request = CreateTopicsRequest(topics=[topic], timeout_ms=2**31 - 1)
            connection.sendall(request_frame(request, ApiKey.CREATE_TOPICS, 7))
    began = time.monotonic()
    broker.stop()
    assert time.monotonic() - began < STOP_SECONDS / 2
    for connection in connections:
        connection.close()


# -- slow ------------------------------------------------------------------------------------------------------------------


def test_announced_requests_that_never_come_hold_no_memory(broker: BrokerProcess) -> None:
    before = broker.rss_bytes()
    announced = struct.pack(">ihh", 100 * MiB, ApiKey.PRODUCE, 9)
    connections = [connect(broker) for _ in range(300)]
    with a_good_client(broker):
        for number, connection in enumerate(connections):
            connection.sendall(announced + bytes(number % 7 * 1000))
        time.sleep(0)
    assert grown(broker, before) < 16 * MiB
    for connection in connections:
        connection.close()


def never_finish(connection: socket.socket, size: int) -> None:
    """Send all but the last byte of a request of `size` bytes, and wait until the broker closes the connection."""
    try:
        connection.sendall(struct.pack(">ihh", size, ApiKey.PRODUCE, 9) + bytes(size - 5))
        connection.recv(1)
    except OSError:
        pass


@pytest.mark.slow
def test_unfinished_requests_take_bounded_memory_and_leave_it_to_one_that_goes_on(tmp_path: Path) -> None:
    with a_hostile_world(tmp_path, ottla_large_requests_max_bytes=48 * MiB) as broker, ExitStack() as stack:
        before = broker.rss_bytes()
        connections = [stack.enter_context(connect(broker)) for _ in range(24)]
        threads = [threading.Thread(target=never_finish, args=(each, 8 * MiB - KiB), daemon=True) for each in connections]
        with a_good_client(broker):
            for thread in threads:
                thread.start()
            eventually(lambda: grown(broker, before) > 24 * MiB, what="the first parts of the requests")
            records = [PartitionProduceData(index=0, records=bytes(a_batch(1, value_bytes=900_000)))]
            data = [TopicProduceData(name=f"none-{each}", partition_data=records) for each in range(4)]
            honest = stack.enter_context(connect(broker))
            honest.sendall(request_frame(ProduceRequest(acks=1, timeout_ms=5000, topic_data=data), ApiKey.PRODUCE, 9))
            answer = decode(receive(honest), ApiKey.PRODUCE, 9)
            assert [each.partition_responses[0].error_code for each in answer.responses] == [3] * 4
            most = grown(broker, before)
            eventually(lambda: "arrives too slowly, and others wait for memory" in broker.log(), what="a line about a slow request")
        assert most < 120 * MiB
        for connection in connections:
            connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(ANSWER_SECONDS)
        eventually(lambda: grown(broker, before) < 24 * MiB, what="memory that was given back")


def test_a_client_that_sends_byte_by_byte_is_answered_when_it_is_done(broker: BrokerProcess) -> None:
    connections = [connect(broker) for _ in range(50)]
    with a_good_client(broker):
        for byte in API_VERSIONS:
            for connection in connections:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(bytes([byte]))
            time.sleep(0.01)
        for connection in connections:
            assert len(receive(connection)) > 100
            connection.close()


def test_a_client_that_does_not_read_is_not_read_either_and_holds_no_memory(broker: BrokerProcess) -> None:
    create_topic(broker, "large")
    for _ in range(4):
        records = bytes(a_batch(1, value_bytes=900_000))
        data = TopicProduceData(name="large", partition_data=[PartitionProduceData(index=0, records=records)])
        answer = exchange(broker.port, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), ApiKey.PRODUCE, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=4 * MiB, last_fetched_epoch=-1)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=4 * MiB, session_epoch=-1, topics=[FetchTopic(topic="large", partitions=[partition])]
    )
    frame = request_frame(request, ApiKey.FETCH, 11)
    before = broker.rss_bytes()
    sluggards = [connect(broker) for _ in range(20)]
    with a_good_client(broker):
        for connection in sluggards:
            connection.setblocking(False)
            try:
                for _ in range(100):
                    connection.sendall(frame * 10)
            except BlockingIOError:
                pass  # the broker reads no more of it
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            assert grown(broker, before) < 32 * MiB
            time.sleep(0.05)
        sluggards[0].setblocking(True)
        sluggards[0].settimeout(ANSWER_SECONDS)
        for _ in range(10):
            assert len(receive(sluggards[0])) > 3_600_000
    for connection in sluggards:
        connection.close()
