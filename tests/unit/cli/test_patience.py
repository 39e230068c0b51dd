"""How long commands wait for a cluster that is gone: as long as their options say, and no longer."""

import random
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.cluster import Cluster, UnknownTopic
from ottla.client.config_admin import Change, ConfigOperation, ConfigResourceType, alter_configs, describe_configs
from ottla.client.connection import Address, Connection
from ottla.client.errors import ClientError, ConnectionLost, Refused, Unreachable
from ottla.client.group_member import GroupMember
from ottla.client.producer import Delivery, OutgoingRecord, Producer, ProducerSettings
from ottla.client.topic_admin import grow_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from ottla.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.incremental_alter_configs import AlterConfigsResourceResponse, IncrementalAlterConfigsResponse
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.produce import PartitionProduceResponse

GONE = Address("127.0.0.1", 1)
LONG_SECONDS = 60.0
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 70, "\udcff"])
def test_a_host_name_that_cannot_be_looked_up_is_one_line(host: str) -> None:
    with pytest.raises(Unreachable, match=r"no broker can be reached at .*: a part of the host name is empty or too long"):
        Connection(Address(host, 9092), "t", 0.5)


class PlayedSocket:
    """A socket to addresses that refuse a connection at once, or do not answer: then the clock goes on by the timeout."""

    now = 0.0
    waited: list[float]
    """The timeout of each attempt."""

    def __init__(self, *_: int) -> None:
        self._seconds = 0.0

    def settimeout(self, seconds: float) -> None:
        self._seconds = seconds

    def connect(self, place: tuple[str, int]) -> None:
        self.waited.append(self._seconds)
        if place == REFUSING:
            raise ConnectionRefusedError
        PlayedSocket.now += self._seconds
        raise TimeoutError("timed out")

    def close(self) -> None:
        """There is nothing to close."""


REFUSING, SILENT = ("127.0.0.1", 1), ("127.0.0.1", 2)


@pytest.mark.parametrize(
    ("places", "waited"), [([SILENT] * 3, [1.0, 1.0, 1.0]), ([REFUSING, SILENT, SILENT], [1.0, 1.5, 1.5]), ([SILENT], [3.0])]
)
def test_the_addresses_of_a_host_name_share_the_timeout(
    places: list[tuple[str, int]], waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedSocket, "now", 0.0)
    monkeypatch.setattr(PlayedSocket, "waited", [], raising=False)
    monkeypatch.setattr(time, "monotonic", lambda: PlayedSocket.now)
    monkeypatch.setattr(socket, "socket", PlayedSocket)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in places])
    with pytest.raises(Unreachable, match="no broker can be reached at many:9092: timed out"):
        Connection(Address("many", 9092), "t", 3.0)
    assert PlayedSocket.waited == pytest.approx(waited)
    assert PlayedSocket.now == pytest.approx(3.0)


@pytest.mark.slow
def test_the_next_address_of_a_host_name_is_used_if_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = [GONE, silent.getsockname()]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(Unreachable, match="the server at many:9092 does not answer"):
            Connection(Address("many", 9092), "t", 0.5)
        silent.accept()[0].close()


def known_but_gone(timeout_seconds: float) -> Cluster:
    """A cluster whose only broker was known, leads a partition, and cannot be reached any more."""
    cluster = Cluster(str(GONE), timeout_seconds=timeout_seconds)
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
    cluster._brokers = {1: GONE}
    cluster._topics = {"t": MetadataResponseTopic(name="t", partitions=[partition])}
    return cluster


@pytest.mark.slow
def test_a_producer_gives_up_after_its_delivery_timeout_however_long_the_timeout_of_requests_is() -> None:
    settings = ProducerSettings(acks=1, linger_seconds=0, delivery_timeout_seconds=0.5)
    deliveries: list[Delivery] = []
    began = time.monotonic()
    producer = Producer(known_but_gone(LONG_SECONDS), "t", settings, deliveries.append, choose=random.choice)
    producer.send(OutgoingRecord(b"v"))
    producer.flush()
    assert 0.4 < time.monotonic() - began < 10
    (delivery,) = deliveries
    assert isinstance(delivery.error, ConnectionLost)


class SilentConnection:
    """A connection to a broker that takes requests and answers none."""

    address = GONE
    has_received = False

    def __init__(self) -> None:
        self._mine, self._other = socket.socketpair()
        self.requests = 0

    def fileno(self) -> int:
        return self._mine.fileno()

    def send(self, request: object, *, is_answered: bool = True) -> None:
        self.requests += 1

    def close(self) -> None:
        self._mine.close()
        self._other.close()


@pytest.mark.slow
def test_no_batch_follows_one_that_may_be_written_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known_but_gone(LONG_SECONDS)
    connections: list[SilentConnection] = []

    def connect(_: Address) -> SilentConnection:
        connections.append(SilentConnection())
        return connections[-1]

    monkeypatch.setattr(cluster, "new_connection", connect)
    monkeypatch.setattr(Producer, "_ask_producer_id", lambda _: (7, 0))
    deliveries: list[Delivery] = []
    settings = ProducerSettings(linger_seconds=0, delivery_timeout_seconds=0.3)
    producer = Producer(cluster, "t", settings, deliveries.append, choose=random.choice)
    for value in (b"first", b"second"):
        producer.send(OutgoingRecord(value))
        producer.flush()
    producer.close()
    assert [connection.requests for connection in connections] == [1]
    assert [type(delivery.error) for delivery in deliveries] == [ConnectionLost, ClientError]
    assert "t-0: not sent, since the batch before it may be written or not: the broker at" in str(deliveries[1].error)


def test_a_batch_is_sent_again_when_its_leader_has_left_the_cluster_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known_but_gone(0.1)
    connections: list[SilentConnection] = []

    def connect(_: Address) -> SilentConnection:
        connections.append(SilentConnection())
        return connections[-1]

    monkeypatch.setattr(cluster, "new_connection", connect)
    monkeypatch.setattr(cluster, "forget", lambda _: None)
    monkeypatch.setattr(cluster, "has_left", lambda _: len(connections) == 1)
    settings = ProducerSettings(acks=1, linger_seconds=0, delivery_timeout_seconds=LONG_SECONDS)
    producer = Producer(cluster, "t", settings, lambda _: None, choose=random.choice)
    producer.send(OutgoingRecord(b"v"))
    deadline = time.monotonic() + 10
    while len(connections) < 2 and time.monotonic() < deadline:
        producer.poll(0.02)
    producer.close()
    assert [connection.requests for connection in connections] == [1, 1]


def test_a_batch_whose_delivery_has_failed_in_the_pause_between_two_attempts_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known_but_gone(LONG_SECONDS)
    monkeypatch.setattr(cluster, "forget", lambda _: None)
    deliveries: list[Delivery] = []
    producer = Producer(cluster, "t", ProducerSettings(acks=1), deliveries.append, choose=random.choice)
    connection: Any = SilentConnection()
    producer._connections[1] = connection
    producer.send(OutgoingRecord(b"v", partition=0))
    producer._close_batch(0)
    batch = producer._waiting[0][0]
    producer._send_waiting(time.monotonic())
    lost = ConnectionLost("no answer")
    producer._again_or_give_up(batch, lost)
    producer._muted.clear()
    producer._send_waiting(producer._deadline_of(batch) + 1)
    connection.close()
    assert connection.requests == 1
    assert [delivery.error for delivery in deliveries] == [lost]
    assert not producer.has_work


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_no_batch_follows_one_that_is_refused_after_its_first_answer_was_lost(is_lost_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producer, "_ask_producer_id", lambda _: (7, 0))
    cluster = known_but_gone(LONG_SECONDS)
    deliveries: list[Delivery] = []
    producer = Producer(cluster, "t", ProducerSettings(), deliveries.append, choose=random.choice)
    connection: Any = SilentConnection()
    for value in (b"first", b"second"):
        producer.send(OutgoingRecord(value, partition=0))
        producer._close_batch(0)
    first = producer._waiting[0][0]
    producer._connections[1] = connection
    producer._send_to(1, [first], 0.0)
    if is_lost_first:
        producer._again_or_give_up(first, ConnectionLost("no answer"))
    producer._on_result(first, PartitionProduceResponse(index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    producer._send_waiting(time.monotonic())
    connection.close()
    assert [type(delivery.error) for delivery in deliveries] == ([Refused, ClientError] if is_lost_first else [Refused])
    assert connection.requests == (1 if is_lost_first else 2)


def test_records_join_the_open_batch_as_long_as_another_one_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producer, "_ask_producer_id", lambda _: (7, 0))
    deliveries: list[Delivery] = []
    producer = Producer(known_but_gone(LONG_SECONDS), "t", ProducerSettings(linger_seconds=0), deliveries.append, choose=random.choice)
    connection: Any = SilentConnection()
    producer._connections[1] = connection
    producer.send(OutgoingRecord(b"first", partition=0))
    producer.poll()
    for _ in range(5):
        producer.send(OutgoingRecord(b"later", partition=0))
        producer.poll()
    assert connection.requests == 1
    assert producer.next_deadline is None
    producer._on_result(producer._waiting[0][0], PartitionProduceResponse(index=0, error_code=ErrorCode.NONE, base_offset=0))
    assert producer.next_deadline is not None
    producer.poll()
    assert connection.requests == 2
    producer._on_result(producer._waiting[0][0], PartitionProduceResponse(index=0, error_code=ErrorCode.NONE, base_offset=1))
    connection.close()
    assert [delivery.records for delivery in deliveries] == [1, 5]


class WithoutCoordinator(Cluster):
    """A cluster that cannot create the topic of the offsets."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(str(GONE), timeout_seconds=timeout_seconds)
        self.asked = 0

    def ask(self, find: object, request: object, response: object, **options: object) -> FindCoordinatorResponse:  # type: ignore[override]  # of one request
        assert isinstance(request, FindCoordinatorRequest)
        self.asked += 1
        return FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class WithoutTopics(Cluster):
    """A cluster that does not know the topic of any request."""

    def __init__(self) -> None:
        super().__init__(str(GONE), timeout_seconds=LONG_SECONDS)
        self.asked = 0

    def ask(self, find: object, request: object, response: type[Any], **options: object) -> Any:
        self.asked += 1
        results: dict[type[Any], dict[str, Any]] = {
            CreatePartitionsResponse: {"results": [CreatePartitionsTopicResult(name="t", error_code=UNKNOWN)]},
            DescribeConfigsResponse: {"results": [DescribeConfigsResult(resource_name="t", error_code=UNKNOWN)]},
            IncrementalAlterConfigsResponse: {"responses": [AlterConfigsResourceResponse(resource_name="t", error_code=UNKNOWN)]},
        }
        return response(**results[response])


@pytest.mark.parametrize(
    "work",
    [
        lambda cluster: grow_topic(cluster, "t", 2),
        lambda cluster: describe_configs(cluster, ConfigResourceType.TOPIC, "t"),
        lambda cluster: alter_configs(cluster, ConfigResourceType.TOPIC, "t", [Change("retention.ms", ConfigOperation.DELETE, None)]),
    ],
)
def test_no_command_waits_for_a_topic_to_appear(work: Callable[[Cluster], object]) -> None:
    cluster = WithoutTopics()
    with pytest.raises(UnknownTopic, match="topic t: there is no such topic"):
        work(cluster)
    assert cluster.asked == 1


@pytest.mark.slow
def test_a_member_waits_for_a_coordinator_as_long_as_the_timeout() -> None:
    cluster = WithoutCoordinator(0.5)
    began = time.monotonic()
    with pytest.raises(Refused, match="COORDINATOR_NOT_AVAILABLE"):
        GroupMember(cluster, "g", ["t"]).join()
    assert time.monotonic() - began < 10
    assert cluster.asked > 1


@pytest.mark.slow
def test_a_member_waits_for_a_coordinator_that_is_gone_as_long_as_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known_but_gone(0.5)
    monkeypatch.setattr(cluster, "coordinator", lambda group: GONE)
    began = time.monotonic()
    with pytest.raises(ClientError, match="no broker can be reached"):
        GroupMember(cluster, "g", ["t"]).join()
    assert time.monotonic() - began < 10


def test_repeated_attempts_end_at_the_earliest_deadline() -> None:
    cluster = known_but_gone(LONG_SECONDS)
    began = time.monotonic()
    with cluster.until(began + 0.3), cluster.until(began + LONG_SECONDS), pytest.raises(ConnectionLost):
        cluster.refresh(["t"])
    assert time.monotonic() - began < 10
