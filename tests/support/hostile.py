"""Clients that mean no good, and one that does while they are there."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from ottla.broker.handlers.table import IMPLEMENTED
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import a_batch
from tests.support.broker_process import BrokerProcess
from tests.support.golden_frames import all_golden_frames
from tests.support.golden_replay import decode, exchange, receive, request_frame

ANSWER_SECONDS = 60.0

WITH_AUTHORITY = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
    }
)
"""Requests that, when valid, remove topics of others or change the broker; a client that may send them needs no attack."""


def recorded_requests(*, with_authority: bool = False) -> list[bytes]:
    """Recorded requests of implemented APIs, without their length."""
    return [
        frame.data
        for frame in all_golden_frames()
        if frame.is_request and frame.api.key in IMPLEMENTED and (with_authority or frame.api.key not in WITH_AUTHORITY)
    ]


def damaged(frames: list[bytes], random: Random) -> bytes:
    """One of the frames with some bytes changed, mostly behind the api key and version, sometimes cut, with a length that is right."""
    frame = bytearray(random.choice(frames))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(0 if random.random() < 0.05 else 4, len(frame))
        frame[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    if random.random() < 0.1:
        del frame[random.randrange(len(frame)) :]
    return len(frame).to_bytes(4, "big") + frame


def throw(port: int, data: bytes, patience_seconds: float = ANSWER_SECONDS) -> None:
    """Send all of it, and read until the broker closes, or has had nothing to say for a while."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(patience_seconds)
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
        except (ConnectionError, TimeoutError):
            pass  # the broker closed while there was more to send, or something waits


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker closes it, within the time that the socket allows."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def create_topic(broker: BrokerProcess, name: str) -> None:
    """A topic with one partition."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = exchange(broker.port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), ApiKey.CREATE_TOPICS, 7)
    assert answer.topics[0].error_code == 0


class GoodClient:
    """Produces and fetches all the time, on one connection, and checks every answer."""

    TOPIC = "good"

    def __init__(self, port: int) -> None:
        self.answered = 0
        self.failure: BaseException | None = None
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.settimeout(ANSWER_SECONDS)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.002):
                self.ask()
        except BaseException as error:
            self.failure = error

    def ask(self) -> None:
        """One record there and back."""
        data = TopicProduceData(name=self.TOPIC, partition_data=[PartitionProduceData(index=0, records=bytes(a_batch()))])
        produced = self._exchange(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), ApiKey.PRODUCE, 9)
        answer = produced.responses[0].partition_responses[0]  # type: ignore[attr-defined]  # a ProduceResponse
        assert answer.error_code == 0, answer
        partition = FetchPartition(partition=0, fetch_offset=answer.base_offset, partition_max_bytes=1000, last_fetched_epoch=-1)
        topics = [FetchTopic(topic=self.TOPIC, partitions=[partition])]
        request = FetchRequest(max_wait_ms=5000, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics)
        fetched = self._exchange(request, ApiKey.FETCH, 11).responses[0].partitions[0]  # type: ignore[attr-defined]  # a FetchResponse
        assert fetched.error_code == 0
        assert len(fetched.records) == len(a_batch())
        self.answered += 1

    def _exchange(self, request: ProduceRequest | FetchRequest, key: ApiKey, version: int) -> object:
        self._connection.sendall(request_frame(request, key, version))
        return decode(receive(self._connection), key, version)

    def stop(self) -> None:
        """Stop, and fail if it was ever let down."""
        self._stop.set()
        self._thread.join(2 * ANSWER_SECONDS)
        self._connection.close()
        if self.failure is not None:
            raise AssertionError(f"the good client was let down after {self.answered} exchanges") from self.failure


@contextmanager
def a_good_client(broker: BrokerProcess) -> Iterator[GoodClient]:
    """Served all the time, or the test fails. The topic is made before."""
    client = GoodClient(broker.port)
    try:
        yield client
        before = client.answered
        deadline = time.monotonic() + ANSWER_SECONDS
        while client.failure is None and client.answered < before + 3:
            assert time.monotonic() < deadline, "the good client is served no more"
            time.sleep(0.01)
    finally:
        client.stop()


def open_files(pid: int) -> int:
    """The descriptors of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextmanager
def many_open_files(count: int) -> Iterator[bool]:
    """Lets this process, and those it starts, have `count` descriptors; False when the system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        yield False
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield True
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def complaints(log: Path) -> list[str]:
    """The lines of a broker's log that are warnings or worse, or part of a stack trace."""
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if " WARN" in line or " ERROR" in line or "CRITICAL" in line or "Traceback" in line or line[:2] == "  "]
