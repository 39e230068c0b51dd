"""The order in which a drain moves the partitions of a broker: some at a time, by plans that are not made anew for each."""

from collections.abc import Mapping, Sequence, Set

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
    """Three brokers with topics of one partition; a move is done when it has been looked at three times."""

    timeout_seconds = 5.0

    def __init__(self, topics: int) -> None:
        self.replicas = {TopicPartition(f"t-{number:03}", 0): [0, 1] for number in range(topics)}
        self.asked_for_all = 0
        self.begun_together: list[int] = []
        self.most_moving = 0
        self.refused: TopicPartition | None = None
        self.moving: dict[TopicPartition, Move] = {}
        self.begun: dict[TopicPartition, int] = {}
        self.looks = 0
        self.alive = range(3)
        self.leader = 1

    def refresh(self, topics: object) -> MetadataResponse:
        self.asked_for_all += topics is None
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=number, host="h", port=1, rack=None) for number in self.alive],
            topics=[
                MetadataResponseTopic(
                    name=name.topic,
                    partitions=[MetadataResponsePartition(partition_index=0, leader_id=self.leader, replica_nodes=found, isr_nodes=found)],
                )
                for name, found in self.replicas.items()
            ],
        )

    def reassign(self, _: object, plan: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, ClientError | None]:
        self.begun_together.append(len(plan))
        outcomes: dict[TopicPartition, ClientError | None] = dict.fromkeys(plan)
        for name in plan:
            if name == self.refused or name not in self.replicas:
                outcomes[name] = ClientError("refused")
        for name, target in plan.items():
            if outcomes[name] is None:
                self.replicas[name] = list(target)
                self.moving[name] = Move([0, *target], [2], [0])
                self.begun[name] = self.looks
        self.most_moving = max(self.most_moving, len(self.moving))
        return outcomes

    def moves(self, _: object, partitions: object = None) -> dict[TopicPartition, Move]:
        if partitions is None:
            return dict(self.moving)
        self.looks += 1
        for name in [name for name in self.moving if self.looks - self.begun[name] >= 3]:
            target = self.moving.pop(name).target
            if name in self.replicas:
                self.replicas[name] = target
        return dict(self.moving)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(250)
    monkeypatch.setattr(drain.reassignments, "reassign", made.reassign)
    monkeypatch.setattr(drain.reassignments, "moves", made.moves)
    for name in ("_POLL_SECONDS", "_SETTLE_SECONDS", "_STEP_SECONDS"):
        monkeypatch.setattr(drain, name, 0.0)
    return made


def test_no_more_partitions_move_together_than_is_wanted(cluster: Cluster) -> None:
    told: list[tuple[int, int]] = []

    assert drain.drain(cluster, {0}, lambda done, total: told.append((done, total)), at_once=23) == 250

    assert not any(0 in replicas for replicas in cluster.replicas.values())
    assert cluster.most_moving == 23
    assert told == sorted(told)
    assert told[-1] == (250, 250)


def test_a_drain_that_continues_counts_the_partitions_that_move_already(cluster: Cluster) -> None:
    begun = list(cluster.replicas)[:20]
    cluster.moving = {name: Move([0, 1, 2], [2], [0]) for name in begun}
    cluster.begun = dict.fromkeys(begun, 0)
    told: list[tuple[int, int]] = []

    assert drain.drain(cluster, {0}, lambda done, total: told.append((done, total)), at_once=23) == 250

    assert cluster.most_moving == 23
    assert not any(0 in replicas for replicas in cluster.replicas.values())
    assert told == sorted(told)
    assert told[-1] == (250, 250)


def test_few_partitions_begin_together_and_do_not_wait_for_those_before(cluster: Cluster) -> None:
    drain.drain(cluster, {0}, lambda *_: None, at_once=100)

    assert set(cluster.begun_together) == {10}
    assert cluster.most_moving == 3 * 10


def test_who_lets_more_move_at_once_has_more_begin_together(cluster: Cluster) -> None:
    drain.drain(cluster, {0}, lambda *_: None, at_once=500)

    assert set(cluster.begun_together) == {50}


def test_one_plan_serves_many_partitions(cluster: Cluster) -> None:
    drain.drain(cluster, {0}, lambda *_: None, at_once=1)

    assert cluster.asked_for_all == 2 + 1


def test_a_partition_that_two_plans_cannot_move_ends_a_drain_when_those_beside_it_have_moved(cluster: Cluster) -> None:
    cluster.refused = TopicPartition("t-042", 0)

    with pytest.raises(SomeRefused, match="refused"):
        drain.drain(cluster, {0}, lambda *_: None, at_once=10)

    assert sum(0 not in replicas for replicas in cluster.replicas.values()) == 49 + 9


def test_a_topic_that_is_deleted_after_the_plan_was_made_ends_no_drain_and_leaves_no_throttle(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = TopicPartition("t-042", 0)
    throttled: set[str] = set()
    monkeypatch.setattr(drain.reassignments, "throttle", lambda _, __, plan, ___: throttled.update(name.topic for name in plan))
    monkeypatch.setattr(drain.reassignments, "clear_throttles", lambda _, topics: throttled.difference_update(topics))

    def delete(done: int, _: int) -> None:
        if done == 20 and deleted in cluster.replicas:
            del cluster.replicas[deleted]

    assert drain.drain(cluster, {0}, delete, at_once=10, rate=1000) == 249
    assert not any(0 in replicas for replicas in cluster.replicas.values())
    assert throttled == set()


def test_a_partition_that_is_made_while_the_plan_is_made_is_throttled_as_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_of = drain.plan_of
    throttled: set[str] = set()

    def throttle(_: object, current: Mapping[TopicPartition, Sequence[int]], plan: Mapping[TopicPartition, Sequence[int]], __: int) -> None:
        throttled.update(name.topic for name in plan if current[name])

    def planned(asked: object, leaving: Set[int], *, ignore_racks: bool) -> dict[TopicPartition, list[int]]:
        cluster.replicas = {TopicPartition("a-new-one", 0): [1, 0], **cluster.replicas}
        return plan_of(asked, leaving, ignore_racks=ignore_racks)

    monkeypatch.setattr(drain, "plan_of", planned)
    monkeypatch.setattr(drain.reassignments, "throttle", throttle)
    monkeypatch.setattr(drain.reassignments, "clear_throttles", lambda *_: None)
    assert drain.drain(cluster, {0}, lambda *_: None, at_once=100, rate=1000) == 251
    assert "a-new-one" in throttled


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The topics whose throttles were removed, with those of all brokers, in each call."""
    calls: list[set[str]] = []
    monkeypatch.setattr(drain.reassignments, "throttle", lambda *_: None)
    monkeypatch.setattr(drain.reassignments, "clear_throttles", lambda _, topics: calls.append(set(topics)))
    return calls


def test_a_drain_that_continues_when_nothing_is_left_to_move_removes_the_throttles(cluster: Cluster, cleared: list[set[str]]) -> None:
    assert drain.drain(cluster, {2}, lambda *_: None, at_once=10, rate=1000) == 0
    assert cleared == [set()]
    cluster.moving = {TopicPartition("t-000", 0): Move([0, 1, 2], [2], [0])}  # of another command
    assert drain.drain(cluster, {2}, lambda *_: None, at_once=10, rate=1000) == 0
    assert drain.drain(cluster, {2}, lambda *_: None, at_once=10) == 0
    assert cleared == [set()]


@pytest.mark.parametrize("spreads", [False, True])
def test_a_command_that_continues_waits_for_the_moves_that_have_begun_and_removes_their_throttles(
    spreads: bool, cluster: Cluster, cleared: list[set[str]]
) -> None:
    begun = list(cluster.replicas)[:20]
    cluster.moving = {name: Move([0, 1, 2], [2], [0]) for name in begun}
    cluster.begun = dict.fromkeys(begun, 0)
    cluster.replicas |= {name: [0, 1, 2] for name in begun}
    if spreads:
        drain.spread(cluster, lambda *_: None, at_once=1000, rate=1000)
    else:
        drain.drain(cluster, {0}, lambda *_: None, at_once=1000, rate=1000)
    assert not cluster.moving
    assert len(cleared) == 1
    assert cleared[0].issuperset(name.topic for name in begun)


def test_replicas_are_not_spread_while_a_broker_that_has_some_is_dead(cluster: Cluster) -> None:
    cluster.alive = range(1, 3)
    with pytest.raises(ClientError, match="broker 0 has replicas, and is not alive: start it, or `ottla brokers drain` it, first"):
        drain.spread(cluster, lambda *_: None, at_once=10)
    cluster.alive, cluster.leader = range(3), -1
    with pytest.raises(ClientError, match=r"t-000-0, .* cannot be moved without a leader"):
        drain.spread(cluster, lambda *_: None, at_once=10)
    assert cluster.begun_together == []
