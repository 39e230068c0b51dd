"""Many brokers are asked at the same time: those that do not answer take the timeout once, and connections are used again."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from ottla.client import topic_admin
from ottla.client.cluster import Cluster
from ottla.client.connection import Address, Connection
from ottla.client.errors import ClientError, ConnectionLost, Refused, Unreachable
from ottla.client.group_admin import reachable_groups
from ottla.client.offsets import LATEST, reachable_offsets
from ottla.client.reachable import at_once, of_brokers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition

BROKERS = range(20)
SECONDS = 0.5


@pytest.fixture
def silent() -> Iterator[Cluster]:
    """A cluster whose brokers accept connections and answer nothing; each leads a partition of t."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in BROKERS]
    with Cluster("127.0.0.1:1", timeout_seconds=SECONDS) as cluster:
        cluster._brokers = {number: Address("127.0.0.1", each.getsockname()[1]) for number, each in enumerate(listening)}
        partitions = [MetadataResponsePartition(partition_index=number, leader_id=number) for number in BROKERS]
        cluster._topics = {"t": MetadataResponseTopic(name="t", partitions=partitions)}
        yield cluster
    for each in listening:
        each.close()


@pytest.mark.slow
def test_silent_coordinators_take_the_timeout_once(silent: Cluster) -> None:
    began = time.monotonic()
    found, errors = reachable_groups(silent)
    assert time.monotonic() - began < len(BROKERS) * SECONDS / 2
    assert (found, list(errors)) == ([], list(BROKERS))
    assert all("does not answer" in str(error) for error in errors.values())


@pytest.mark.slow
def test_silent_leaders_take_the_timeout_once(silent: Cluster) -> None:
    names = [TopicPartition("t", number) for number in BROKERS]
    silent.refresh = lambda *_, **__: pytest.fail("the metadata is known")  # type: ignore[method-assign]  # no broker gives it
    silent.forget = lambda topic: None  # type: ignore[method-assign]  # it stays known
    began = time.monotonic()
    found, errors = reachable_offsets(silent, dict.fromkeys(names, LATEST), seconds=SECONDS)
    assert time.monotonic() - began < len(BROKERS) * SECONDS / 2
    assert (found, sorted(errors)) == ({}, names)


def test_one_of_several_brokers_has_a_third_of_the_timeout_to_accept_a_connection(silent: Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(ConnectionLost, match="does not answer"):
        silent.broker(BROKERS[0])
    assert time.monotonic() - began < SECONDS * 2 / 3


@pytest.mark.slow
def test_silent_brokers_delay_the_creation_of_a_topic_once(silent: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(find: Callable[[], Connection], _: Message, response: type[Any], **__: object) -> CreateTopicsResponse:
        if response is not CreateTopicsResponse:
            find()
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="new")])

    monkeypatch.setattr(silent, "ask", ask)
    monkeypatch.setattr(topic_admin, "_KNOWN_SECONDS", SECONDS)
    began = time.monotonic()
    assert topic_admin.create_topics(silent, [topic_admin.NewTopic("new")]) == {"new": None}
    assert SECONDS / 2 < time.monotonic() - began < len(BROKERS) * SECONDS / 2


@pytest.mark.slow
def test_bootstrap_servers_that_do_not_answer_take_the_timeout_together(silent: Cluster) -> None:
    bootstrap = ",".join(map(str, silent._brokers.values()))
    began = time.monotonic()
    with Cluster(bootstrap, timeout_seconds=SECONDS) as cluster, pytest.raises(Unreachable) as raised:
        cluster.refresh([])
    assert time.monotonic() - began < len(BROKERS) * SECONDS / 2
    assert str(raised.value).count("does not answer") == len(BROKERS)


class Known:
    """A connection."""

    is_open = True

    def __init__(self, address: Address) -> None:
        self.address = address

    def close(self) -> None:
        self.is_open = False


def test_each_broker_is_asked_by_its_own_connection_which_is_used_again() -> None:
    all_are_asked = threading.Barrier(3, timeout=30)
    cluster = Cluster("127.0.0.1:1")
    cluster._brokers = {number: Address("there", number) for number in range(3)}
    known = {address: Known(address) for address in cluster._brokers.values()}
    cluster._connections = cast("dict[Address, Connection]", dict(known))

    def ask(own: Cluster, broker_id: int) -> list[Address]:
        all_are_asked.wait()
        if broker_id == 1:
            own.drop(own.broker(broker_id))
            raise ConnectionLost("the connection broke")
        return list(own._connections)

    found, errors = at_once(cluster, range(3), ask)
    assert found == {0: [Address("there", 0)], 2: [Address("there", 2)]}
    assert [str(error) for error in errors.values()] == ["the connection broke"]
    assert sorted(address.port for address in cluster._connections) == [0, 2]
    assert [each.is_open for each in known.values()] == [True, False, True]
    cluster.close()
    assert not any(each.is_open for each in known.values())


def test_an_error_that_is_no_answer_of_a_broker_ends_the_command() -> None:
    def ask(_: Cluster, broker_id: int) -> None:
        raise ValueError(broker_id)

    with Cluster("127.0.0.1:1") as cluster, pytest.raises(ValueError, match="7"):
        at_once(cluster, [7], ask)


def test_a_coordinator_that_moves_is_asked_again_while_the_others_wait() -> None:
    asked: list[int] = []

    def ask(_: Cluster, broker_id: int) -> str:
        asked.append(broker_id)
        if broker_id == 0:
            raise Refused("the groups", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if asked.count(broker_id) < broker_id:
            raise Refused("the groups", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return f"of {broker_id}"

    with Cluster("127.0.0.1:1") as cluster:
        cluster._brokers = {number: Address("there", number) for number in range(4)}
        found, errors = of_brokers(cluster, ask)
    assert found == {number: f"of {number}" for number in range(1, 4)}
    assert (list(errors), sorted(asked)) == ([0], [0, 1, 2, 2, 3, 3, 3])
    assert isinstance(errors[0], ClientError)
