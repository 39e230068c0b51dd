"""A reassignment that the console cancels is cancelled, also while a broker does not answer."""

import pytest

from ottla.client import reassignments
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.client.reassignments import Move
from ottla.console import control
from ottla.console.parameters import Body
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The topics whose throttles were removed; two partitions are being moved."""
    found: list[list[str]] = []
    monkeypatch.setattr(reassignments, "moves", lambda _: dict.fromkeys((FIRST, SECOND), Move([0, 1], [1], [])))
    monkeypatch.setattr(reassignments, "reassign", lambda _, wanted: dict.fromkeys(wanted))
    monkeypatch.setattr(reassignments, "clear_throttles", lambda _, topics: found.append(list(topics)))
    return found


def test_the_throttles_stay_until_the_last_move_is_cancelled(cleared: list[list[str]]) -> None:
    with Cluster("127.0.0.1:1") as cluster:
        one = Body({"partitions": [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 9}]})
        assert control.cancel_moves(cluster, {}, one) == {"cancelled": [FIRST._asdict()]}
        assert cleared == []
        assert len(control.cancel_moves(cluster, {}, Body({"all": True}))["cancelled"]) == 2
    assert cleared == [["t", "t"]]


def test_throttles_that_cannot_be_removed_are_named_after_the_moves_are_cancelled(
    cleared: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionLost("broker 1 does not answer")

    monkeypatch.setattr(reassignments, "clear_throttles", fail)
    with Cluster("127.0.0.1:1") as cluster, pytest.raises(ClientError) as failed:
        control.cancel_moves(cluster, {}, Body({"all": True}))
    assert str(failed.value) == "the moves are cancelled, and throttles are left: broker 1 does not answer; remove them later"


def test_a_start_that_fails_says_that_its_throttles_may_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Refused("the controller", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr(reassignments, "replicas_of", lambda *_: {FIRST: [0]})
    monkeypatch.setattr(reassignments, "moves", lambda *_: {})
    monkeypatch.setattr(reassignments, "throttle", lambda *_: None)
    monkeypatch.setattr(reassignments, "reassign", fail)
    monkeypatch.setattr(control, "check_brokers", lambda *_: None)
    plan = {"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}
    with Cluster("127.0.0.1:1") as cluster:
        with pytest.raises(Refused, match=r"; replication throttles may be left: remove them once nothing is being moved$"):
            control.start_moves(cluster, {}, Body({"plan": plan, "throttle": 1000}))
        with pytest.raises(Refused, match=r"\(CLUSTER_AUTHORIZATION_FAILED\)$"):
            control.start_moves(cluster, {}, Body({"plan": plan}))
