"""Brokers that do not answer: another one is asked, and a command that is repeated says that it may have been carried out."""

import socket
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from ottla.client.cluster import Cluster
from ottla.client.connection import Address, Connection
from ottla.client.errors import ClientError, ConnectionLost, Unreachable
from ottla.client.group_admin import delete_groups
from ottla.client.group_offsets.committed import delete_offsets
from ottla.client.reachable import of_coordinators
from ottla.client.reassignments import reassign
from ottla.client.topic_admin import NewTopic, create_topics, delete_topics, grow_topic
from ottla.client.user_admin import alter_users
from ottla.client.versions import api_table
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult
from ottla.protocol.messages.api_versions import ApiVersion
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from ottla.protocol.messages.offset_delete import OffsetDeleteResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition

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


class MovingController:
    """A connection to the second broker. The first one is the controller, and leaves the cluster when it is looked for a third time."""

    address = SECOND

    def __init__(self) -> None:
        self.looks = 0

    def ask(self, request: Message, response: type[Message], **_: object) -> Message:
        if isinstance(request, CreatePartitionsRequest):
            return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t")])
        assert isinstance(request, MetadataRequest)
        self.looks += 1
        alive = [SECOND] if self.looks > 2 else [FIRST, SECOND]
        brokers = [MetadataResponseBroker(node_id=each.port, host=each.host, port=each.port) for each in alive]
        return MetadataResponse(controller_id=alive[0].port, brokers=brokers)


class HangingConnection:
    """A connection to the first broker, which takes requests and answers none."""

    address = FIRST

    def ask(self, request: Message, response: type[Message], *, look: Callable[[], None], **_: object) -> Message:
        for _each in range(5):
            look()
        pytest.fail("it was not given up")

    def close(self) -> None:
        """See Connection."""


def test_a_controller_that_hangs_is_given_up_when_it_has_left_the_cluster() -> None:
    second = MovingController()
    cluster = Cluster(f"{FIRST},{SECOND}")
    cluster._connections = cast("dict[Address, Connection]", {SECOND: second, FIRST: HangingConnection()})
    grow_topic(cluster, "t", 2)
    assert second.looks == 4  # before the request, twice during it, and before the next attempt


def test_a_broker_that_left_the_cluster_may_come_back() -> None:
    cluster = Cluster(str(SECOND))
    cluster._connections = cast("dict[Address, Connection]", {SECOND: MovingController()})
    for _ in range(3):
        cluster.refresh([])
    with pytest.raises(ConnectionLost, match="there is no broker 1; alive are 2"):
        cluster.broker(1)
    with pytest.raises(ClientError, match="there is no broker 3; alive are 2") as raised:
        cluster.broker(3)
    assert not isinstance(raised.value, ConnectionLost)


def test_a_wait_for_an_answer_ends_with_the_error_of_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = api_table([ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=1)])
    monkeypatch.setattr(Connection, "_negotiate", lambda _: versions)
    looks: list[None] = []

    def look() -> None:
        looks.append(None)
        if len(looks) > 1:
            raise ConnectionLost("it is gone")

    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(Address(*server.getsockname()), "t", 30.0)
        with pytest.raises(ConnectionLost, match="it is gone"):
            connection.ask(MetadataRequest(topics=[]), MetadataResponse, look=look, look_seconds=0.01)
        connection.close()
    assert len(looks) == 2


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


class LosingCluster(Cluster):
    """Answers each command with an error. The first answer is lost, if `loses`; or the controller cannot be reached at first."""

    def __init__(self, answer: Message, *, loses: bool) -> None:
        super().__init__(str(FIRST))
        self._answer = answer
        self._loses = loses
        self._attempts = 0

    def controller(self) -> Connection:
        """See Cluster."""
        self._attempts += 1
        if self._attempts == 1 and not self._loses:
            raise ConnectionLost("the controller cannot be reached")
        return cast("Connection", PlayedConnection(FIRST))

    def coordinator(self, group: str) -> Address:
        """See Cluster."""
        return FIRST

    def connection(self, address: Address) -> Connection:
        """See Cluster."""
        return self.controller()

    def ask(self, find: Callable[[], Connection], request: Message, response: type[Any], **_: object) -> Any:
        """See Cluster."""
        find()
        if self._attempts == 1:
            raise ConnectionLost("no answer")
        assert isinstance(self._answer, response)
        return self._answer


def grow(cluster: Cluster) -> Mapping[str, ClientError | None]:
    with pytest.raises(ClientError) as raised:
        grow_topic(cluster, "t", 2)
    return {"t": raised.value}


def delete_one_offset(cluster: Cluster) -> Mapping[str, ClientError | None]:
    with pytest.raises(ClientError) as raised:
        delete_offsets(cluster, "g", [TopicPartition("t", 0)])
    return {"t": raised.value}


UNKNOWN, EXISTS = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_ALREADY_EXISTS
NO_GROUP, NO_CREDENTIAL = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.slow
@pytest.mark.parametrize("loses", [True, False])
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (
            lambda cluster: create_topics(cluster, [NewTopic("t")]),
            CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=EXISTS)]),
        ),
        (
            lambda cluster: delete_topics(cluster, ["t"]),
            DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=UNKNOWN)]),
        ),
        (grow, CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t", error_code=ErrorCode.INVALID_PARTITIONS)])),
        (
            lambda cluster: delete_groups(cluster, ["t"]),
            DeleteGroupsResponse(results=[DeletableGroupResult(group_id="t", error_code=NO_GROUP)]),
        ),
        (
            lambda cluster: alter_users(cluster, [], [("t", 1)]),
            AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(user="t", error_code=NO_CREDENTIAL)]),
        ),
        (delete_one_offset, OffsetDeleteResponse(error_code=NO_GROUP)),
        (
            lambda cluster: {str(name): error for name, error in reassign(cluster, {TopicPartition("t", 0): None}).items()},
            AlterPartitionReassignmentsResponse(
                responses=[
                    ReassignableTopicResponse(
                        name="t", partitions=[ReassignablePartitionResponse(error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)]
                    )
                ]
            ),
        ),
    ],
)
def test_a_repeated_command_says_that_the_attempt_without_an_answer_may_have_carried_it_out(
    command: Callable[[Cluster], Mapping[str, ClientError | None]], answer: Message, loses: bool
) -> None:
    (error,) = command(LosingCluster(answer, loses=loses)).values()
    assert str(error).endswith("; an earlier attempt of this command, whose answer was lost, may have done this") is loses


def test_the_names_of_a_cluster_that_cannot_be_reached_take_the_timeout_once() -> None:
    asked: list[str] = []

    def coordinator_of(name: str) -> Address:
        asked.append(name)
        raise Unreachable("no broker can be reached")

    with pytest.raises(Unreachable):
        list(of_coordinators("group", ["a", "b"], coordinator_of, str))
    assert asked == ["a"]


def test_the_names_of_a_cluster_that_was_reached_before_take_the_timeout_once() -> None:
    asked: list[str] = []

    def coordinator_of(name: str) -> Address:
        asked.append(name)
        raise ConnectionLost("no broker answers")

    errors = dict(of_coordinators("group", ["a", "b"], coordinator_of, str))
    assert asked == ["a"]
    assert [str(error) for error in errors.values()] == ["group a: no broker answers", "group b: no broker answers"]


class NamingConnection(PlayedConnection):
    """A connection to the first broker, which coordinates the group `alive`, and names the second one for others."""

    def ask(self, request: Message, response: type[Message], **_: object) -> Message:
        if isinstance(request, FindCoordinatorRequest):
            where = FIRST if request.key == "alive" else SECOND
            return FindCoordinatorResponse(host=where.host, port=where.port)
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="alive")])


def test_a_coordinator_that_cannot_be_reached_keeps_no_other_group_from_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(address: Address, *_: object) -> PlayedConnection:
        if address == SECOND:
            raise Unreachable("no broker can be reached there")
        return NamingConnection(address)

    monkeypatch.setattr("ottla.client.cluster.Connection", connect)
    outcomes = delete_groups(Cluster(str(FIRST), timeout_seconds=0.2), ["dead", "alive"])
    assert (str(outcomes["dead"]), outcomes["alive"]) == ("group dead: no broker can be reached there", None)
