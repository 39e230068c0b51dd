"""A client that is interrupted in the middle of a request goes on with another connection, and loses no record; a full buffer is sent."""

from __future__ import annotations

import os
import signal
from typing import Any, cast

import pytest

from ottla.cli.options import ended_in_order
from ottla.client.cluster import Cluster
from ottla.client.connection import Address, Connection
from ottla.client.group_member import GroupMember
from ottla.client.producer import Delivery, OutgoingRecord, Producer, ProducerSettings
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from tests.support.played_leaders import ALIVE, ClusterOfTest

FIRST = Address("127.0.0.1", 1)


class InterruptedConnection:
    """A connection on which the user interrupts the wait for an answer."""

    address = FIRST

    def __init__(self) -> None:
        self.is_closed = False

    def ask(self, *_: object, **__: object) -> object:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.is_closed = True


def test_no_request_follows_one_whose_answer_is_still_to_come() -> None:
    connection = InterruptedConnection()
    cluster = Cluster(str(FIRST))
    cluster._connections[FIRST] = cast("Connection", connection)
    with pytest.raises(KeyboardInterrupt):
        cluster.ask(lambda: cluster._connections[FIRST], MetadataRequest(topics=[]), MetadataResponse)
    assert connection.is_closed
    assert not cluster._connections


def test_a_member_that_is_interrupted_while_it_joins_leaves_by_another_connection() -> None:
    connection = InterruptedConnection()
    member = GroupMember(Cluster(str(FIRST)), "g", ["t"])
    member._connection = cast("Connection", connection)
    with pytest.raises(KeyboardInterrupt):
        member._join_once()
    assert connection.is_closed
    assert member._connection is None


def test_a_signal_to_end_lets_a_command_finish_as_an_interrupt_does() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), ended_in_order():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is before[0]
    finally:
        signal.signal(signal.SIGHUP, before[1])


class Leader:
    """A connection to a leader that answers each Produce, but is interrupted when it sends the first one, if it is to be."""

    def __init__(self, *, is_interrupted: bool = False) -> None:
        self.address = FIRST
        self.sent: list[bytes] = []
        self.in_flight = 0
        self._is_interrupted = is_interrupted

    @property
    def has_received(self) -> bool:
        return bool(self.in_flight)

    def send(self, request: ProduceRequest, *, is_answered: bool) -> None:
        assert is_answered
        self.sent += [bytes(data.records or b"") for topic in request.topic_data for data in topic.partition_data]
        if self._is_interrupted:
            raise KeyboardInterrupt
        self.in_flight += 1

    def receive(self, _: float) -> ProduceResponse:
        self.in_flight -= 1
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse(index=0)])])

    def close(self) -> None:
        """See Connection."""


class PatientProducer(Producer):
    """Gives up when it has looked for answers many times."""

    polls = 0

    def poll(self, timeout_seconds: float = 0.0) -> None:
        self.polls += 1
        assert self.polls < 50, "nothing is sent"
        super().poll(timeout_seconds)


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch) -> list[Leader]:
    """The connections that producers make, one after the other. Producers are idempotent, and do not wait between attempts."""
    made: list[Leader] = []
    connections = iter(made)

    def connect(*_: object) -> Any:
        return next(connections)

    monkeypatch.setattr(ClusterOfTest, "new_connection", connect)
    monkeypatch.setattr(Producer, "_ask_producer_id", lambda _: (7, 0))
    monkeypatch.setattr("ottla.client.producer._BACKOFF_SECONDS", 0.0)
    return made


def test_a_batch_that_was_half_sent_at_an_interrupt_is_sent_again_with_its_sequence(leaders: list[Leader]) -> None:
    leaders += [Leader(is_interrupted=True), Leader()]
    deliveries: list[Delivery] = []
    producer = PatientProducer(ClusterOfTest(ALIVE), "t", ProducerSettings(linger_seconds=0), deliveries.append)
    producer.send(OutgoingRecord(b"first", timestamp_ms=1))
    with pytest.raises(KeyboardInterrupt):
        producer.poll()
    producer.reconnect()
    producer.send(OutgoingRecord(b"second", timestamp_ms=1))
    producer.flush()
    assert leaders[1].sent[0] == leaders[0].sent[0]
    assert [(each.records, each.error) for each in deliveries] == [(1, None), (1, None)]
    assert not producer.has_work


def test_a_full_buffer_is_sent_however_long_batches_linger(leaders: list[Leader]) -> None:
    leaders.append(Leader())
    deliveries: list[Delivery] = []
    settings = ProducerSettings(linger_seconds=1000.0, buffer_bytes=100)
    producer = PatientProducer(ClusterOfTest(ALIVE), "t", settings, deliveries.append)
    for _ in range(10):
        producer.send(OutgoingRecord(b"0123456789"))
    assert [each.records for each in deliveries] == [4, 4]
