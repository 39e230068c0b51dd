"""The order in which a drain moves the partitions of a broker: some at a time, by plans that are not made anew for each."""

from collections.abc import Mapping, Sequence

import pytest

from ottla.client import drain
from ottla.client.errors import ClientError, SomeRefused
from ottla.client.reassignments import Move
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.topic_partition import TopicPartition


class Cluster:
    """Three brokers with topics of one partition; a move is done when it has been looked at once."""

    timeout_seconds = 5.0

    def __init__(self, topics: int) -> None:
        self.replicas = {TopicPartition(f"t-{number:03}", 0): [0, 1] for number in range(topics)}
        self.asked_for_all = 0
        self.moved_together: list[int] = []
        self.refused: TopicPartition | None = None
        self.moving: dict[TopicPartition, Move] = {}

    def refresh(self, topics: object) -> MetadataResponse:
        self.asked_for_all += topics is None
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=number, host="h", port=1, rack=None) for number in range(3)],
            topics=[
                MetadataResponseTopic(
                    name=name.topic,
                    partitions=[MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=found, isr_nodes=found)],
                )
                for name, found in self.replicas.items()
            ],
        )

    def reassign(self, _: object, plan: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, ClientError | None]:
        self.moved_together.append(len(plan))
        outcomes: dict[TopicPartition, ClientError | None] = dict.fromkeys(plan)
        if self.refused in plan:
            outcomes[self.refused] = ClientError("refused")
        for name, target in plan.items():
            if outcomes[name] is None:
                self.replicas[name] = list(target)
                self.moving[name] = Move([0, *target], [2], [0])
        return outcomes

    def moves(self, _: object, partitions: object = None) -> dict[TopicPartition, Move]:
        found, self.moving = self.moving, {}
        return {} if partitions is None else found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(250)
    monkeypatch.setattr(drain.reassignments, "reassign", made.reassign)
    monkeypatch.setattr(drain.reassignments, "moves", made.moves)
    for name in ("_POLL_SECONDS", "_SETTLE_SECONDS"):
        monkeypatch.setattr(drain, name, 0.0)
    return made


def test_no_more_partitions_move_together_than_is_wanted(cluster: Cluster) -> None:
    told: list[tuple[int, int]] = []

    assert drain.drain(cluster, {0}, lambda done, total: told.append((done, total)), at_once=30) == 250

    assert not any(0 in replicas for replicas in cluster.replicas.values())
    assert max(cluster.moved_together) == 30
    assert told == sorted(told)
    assert told[-1] == (250, 250)


def test_one_plan_serves_a_hundred_partitions(cluster: Cluster) -> None:
    drain.drain(cluster, {0}, lambda *_: None, at_once=1)

    assert cluster.asked_for_all == 2 * 3 + 1


def test_a_refused_partition_ends_a_drain_when_those_beside_it_have_moved(cluster: Cluster) -> None:
    cluster.refused = TopicPartition("t-042", 0)

    with pytest.raises(SomeRefused, match="refused"):
        drain.drain(cluster, {0}, lambda *_: None, at_once=10)

    assert sum(0 not in replicas for replicas in cluster.replicas.values()) == 49
