"""Brokers that do not answer: another one is asked."""

from typing import cast

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import Address, Connection
from broker.client.errors import ConnectionLost, Unreachable
from broker.client.reachable import of_coordinators
from protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from protocol.schema.message import Message

FIRST, SECOND = Address("127.0.0.1", 1), Address("127.0.0.1", 2)


class PlayedConnection:
    """A connection to a broker that gives this answer, or none."""

    def __init__(self, address: Address, answer: Message | None = None) -> None:
        self.address = address
        self.timeout_seconds = 0.0
        self.waited: list[float | None] = []
        self._answer = answer

    def ask(self, request: Message, response: type[Message], *, timeout_seconds: float | None = None) -> Message:
        self.waited.append(timeout_seconds)
        if self._answer is None:
            raise ConnectionLost(f"the broker at {self.address} did not answer in time")
        return self._answer

    def close(self) -> None:
        """See Connection."""


def test_a_broker_that_does_not_answer_leaves_time_for_another_one() -> None:
    silent = PlayedConnection(FIRST)
    alive = PlayedConnection(SECOND, MetadataResponse(brokers=[MetadataResponseBroker(node_id=2, host="127.0.0.1", port=2)]))
    cluster = Cluster(f"{FIRST},{SECOND},127.0.0.1:3", timeout_seconds=30.0)
    cluster._connections = cast("dict[Address, Connection]", {each.address: each for each in (silent, alive)})
    assert cluster.broker_ids() == [2]
    assert (silent.waited, alive.waited) == ([10.0], [10.0])


def test_the_only_broker_has_the_whole_timeout() -> None:
    alone = PlayedConnection(FIRST, MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)]))
    cluster = Cluster(str(FIRST), timeout_seconds=30.0)
    cluster._connections = cast("dict[Address, Connection]", {FIRST: alone})
    assert cluster.broker_ids() == [1]
    assert alone.waited == [30.0]


def test_brokers_that_could_not_be_reached_are_tried_last(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Address] = []

    def connect(address: Address) -> PlayedConnection:
        tried.append(address)
        if address == FIRST:
            raise Unreachable("it does not answer")
        return PlayedConnection(address)

    cluster = Cluster(f"{FIRST},{SECOND}")
    monkeypatch.setattr(cluster, "new_connection", connect)
    for _ in range(2):
        assert cluster.any_connection().address == SECOND
        cluster.close()
    assert tried == [FIRST, SECOND, SECOND]


def test_the_names_of_a_cluster_that_cannot_be_reached_take_the_timeout_once() -> None:
    asked: list[str] = []

    def coordinator_of(name: str) -> Address:
        asked.append(name)
        raise Unreachable("no broker can be reached")

    with pytest.raises(Unreachable):
        list(of_coordinators("group", ["a", "b"], coordinator_of, str))
    assert asked == ["a"]
