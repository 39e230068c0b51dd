"""A reassignment that the console cancels is cancelled, also while a broker does not answer."""

import pytest

from broker.cli.console import control
from broker.cli.console.parameters import Body
from broker.client import reassignments
from broker.client.cluster import Cluster, TopicPartition
from broker.client.errors import ClientError, ConnectionLost
from broker.client.reassignments import Move

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
