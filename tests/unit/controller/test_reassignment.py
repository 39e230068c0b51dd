"""Partitions move to other brokers: what is written, who is told what, and how a move goes on after anything that may happen."""

from contextlib import suppress

import pytest

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress, UnknownTopicOrPartition
from ottla.controller.znodes.changes import encode_reassignments
from ottla.controller.znodes.layout import REASSIGN_PARTITIONS, PartitionState, ReplicaAssignment, decode_topic, topic_path
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import Cluster, Crash, P, run


async def move(cluster: Cluster, *target: int, partition: TopicPartition = P) -> None:
    assert await cluster.controller.controller.alter_reassignments({partition: target}) == {partition: None}
    await cluster.settle()


async def give_up(cluster: Cluster, partition: TopicPartition = P) -> None:
    assert await cluster.controller.controller.alter_reassignments({partition: None}) == {partition: None}
    await cluster.settle()


def test_a_move_waits_for_the_new_replicas_and_then_ends_without_the_old_ones() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await move(cluster, 2, 1)
        assert cluster.assignment() == ReplicaAssignment((2, 1, 0), (2,), (0,), (0, 1))
        assert cluster.state() == PartitionState(0, (0, 1), 1, 1)
        assert cluster.peers[2].replicas == {P: (0, 1)}
        await cluster.catch_up(2)
        assert cluster.assignment() == ReplicaAssignment((2, 1))
        assert cluster.state() == PartitionState(2, (1, 2), 3, 1)
        assert P not in cluster.peers[0].replicas
        stops = [request for request in cluster.peers[0].requests if isinstance(request, StopReplicaRequest)]
        assert [(s.leader_epoch, s.delete_partition) for r in stops for t in r.topic_states for s in t.partition_states] == [
            (2, False),
            (3, True),
        ]
        assert all(peer.cluster.leader_of("t", 0) == (2, 3) for peer in cluster.peers.values())

    run(scenario)


def test_fewer_or_differently_ordered_replicas_are_there_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1, 2])
        await move(cluster, 2, 1)
        assert cluster.assignment() == ReplicaAssignment((2, 1))
        assert cluster.state() == PartitionState(2, (1, 2), 2, 1)
        await move(cluster, 1, 2)
        assert cluster.assignment() == ReplicaAssignment((1, 2))
        assert cluster.state() == PartitionState(2, (1, 2), 3, 1)

    run(scenario)


def test_a_move_that_is_given_up_restores_the_order_of_the_replicas() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 0])
        await move(cluster, 2, 0)
        await give_up(cluster)
        assert cluster.assignment() == ReplicaAssignment((1, 0))
        assert cluster.state() == PartitionState(1, (1, 0), 2, 1)
        assert P not in cluster.peers[2].replicas

    run(scenario)


def test_the_order_survives_other_targets_and_other_controllers() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([3, 1, 0])
        await move(cluster, 1, 2, 3)
        await move(cluster, 0, 2)
        assert cluster.assignment() == ReplicaAssignment((0, 2, 3, 1), (2,), (3, 1), (3, 1, 0))
        await cluster.kill(0)
        assert cluster.controller.broker_id != 0
        await give_up(cluster)
        assert cluster.assignment() == ReplicaAssignment((3, 1, 0))

    run(scenario, brokers=4)


def test_another_target_stops_the_replicas_that_nobody_wants_any_more() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await move(cluster, 2, 1)
        await move(cluster, 3, 1)
        assert P not in cluster.peers[2].replicas
        assert cluster.assignment() == ReplicaAssignment((3, 1, 0), (3,), (0,), (0, 1))
        await cluster.catch_up(3)
        assert cluster.assignment() == ReplicaAssignment((3, 1))

    run(scenario, brokers=4)


def test_a_leader_that_is_no_longer_wanted_hands_over_before_it_stops() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await move(cluster, 2, 3)
        await cluster.catch_up(2)
        await cluster.kill(0)
        await cluster.kill(1)
        assert cluster.state().leader == 2
        refused = await cluster.controller.controller.alter_reassignments({P: None})
        assert str(refused[P]) == "Unable to revert partition assignment for t-0 because it would require an unclean leader election."
        await cluster.start(1)
        await cluster.catch_up(1)
        await give_up(cluster)
        assert cluster.assignment() == ReplicaAssignment((0, 1))
        assert cluster.state().leader == 1
        assert cluster.state().isr == (1,)

    run(scenario, brokers=5)


def test_what_cannot_be_is_refused_in_the_words_of_apache_kafka() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        controller = cluster.controller.controller
        unknown = TopicPartition("nope", 0)
        words = {
            (9, 0): "Replica assignment has brokers that are not alive. Replica list: ArrayBuffer(9), live broker list: Set(0, 1, 2)",
            (): "Empty replica list specified in partition reassignment.",
            (1, 1): "Duplicate replica ids in partition reassignment replica list: ArrayBuffer(1, 1)",
            (-1,): "Invalid broker id in replica list: ArrayBuffer(-1)",
        }
        for target, sentence in words.items():
            error = (await controller.alter_reassignments({P: target}))[P]
            assert isinstance(error, InvalidReplicaAssignment)
            assert str(error) == sentence
        results = await controller.alter_reassignments({P: None, unknown: (1,)})
        assert isinstance(results[P], NoReassignmentInProgress)
        assert isinstance(results[unknown], UnknownTopicOrPartition)
        assert cluster.state() == PartitionState(0, (0, 1), 0, 1)

    run(scenario)


def test_the_next_controller_goes_on() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await move(cluster, 2, 3)
        await cluster.kill(0)
        assert cluster.assignment().is_reassigning
        await cluster.catch_up(3)
        assert cluster.assignment() == ReplicaAssignment((2, 3))
        assert P not in cluster.peers[1].replicas

    run(scenario, brokers=4)


def test_a_new_replica_whose_broker_comes_back_is_told_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await move(cluster, 0, 2)
        await cluster.kill(2)
        await cluster.start(2)
        assert P in cluster.peers[2].replicas
        await cluster.catch_up(2)
        assert cluster.assignment() == ReplicaAssignment((0, 2))

    run(scenario)


def test_an_order_in_the_store_is_carried_out_and_removed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1], [0, 1])
        other = TopicPartition("t", 1)
        nope = TopicPartition("nope", 0)
        order = encode_reassignments({P: (2, 1), other: (1, 0), nope: (1,)})
        await cluster.brokers[0].store.create(REASSIGN_PARTITIONS, order)
        await cluster.settle()
        assert cluster.assignment(other) == ReplicaAssignment((1, 0))
        assert cluster.ensemble.dump()[REASSIGN_PARTITIONS].data == encode_reassignments({P: (2, 1)})
        epoch = cluster.state().leader_epoch
        await cluster.catch_up(2)
        assert cluster.assignment() == ReplicaAssignment((2, 1))
        assert cluster.state().leader_epoch == epoch + 2
        assert REASSIGN_PARTITIONS not in cluster.ensemble.dump()
        await cluster.brokers[0].store.create(REASSIGN_PARTITIONS, encode_reassignments({P: (0, 1)}))
        await cluster.settle()
        assert cluster.assignment().adding_replicas == (0,)

    run(scenario)


def test_an_order_that_makes_no_sense_is_removed() -> None:
    async def scenario(cluster: Cluster) -> None:
        for body in (
            b"nonsense",
            b'{"version":1,"partitions":[]}',
            b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[]}]}',
        ):
            await cluster.brokers[0].store.create(REASSIGN_PARTITIONS, body)
            await cluster.settle()
            assert REASSIGN_PARTITIONS not in cluster.ensemble.dump()

    run(scenario, brokers=1)


def test_a_request_takes_an_order_of_the_same_partition_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.brokers[0].store.create(REASSIGN_PARTITIONS, encode_reassignments({P: (2, 1)}))
        await cluster.settle()
        await give_up(cluster)
        assert REASSIGN_PARTITIONS not in cluster.ensemble.dump()
        assert cluster.assignment() == ReplicaAssignment((0, 1))

    run(scenario)


def test_a_topic_can_be_deleted_while_it_moves() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.brokers[0].store.create(REASSIGN_PARTITIONS, encode_reassignments({P: (2, 1)}))
        await cluster.settle()
        assert P in cluster.peers[2].replicas
        assert await cluster.controller.topics.delete_topics(["t"]) == {"t": None}
        await cluster.settle()
        assert not any(P in peer.replicas for peer in cluster.peers.values())
        assert not {"/brokers/topics/t", REASSIGN_PARTITIONS, "/admin/delete_topics/t"} & set(cluster.ensemble.dump())

    run(scenario)


def test_a_topic_that_waits_for_its_deletion_is_not_moved() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.kill(1)
        await cluster.controller.topics.delete_topics(["t"])
        await cluster.settle()
        results = await cluster.controller.controller.alter_reassignments({P: (2,)})
        assert isinstance(results[P], UnknownTopicOrPartition)

    run(scenario)


def test_partitions_that_are_added_meanwhile_are_kept() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await move(cluster, 2, 1)
        path = "/brokers/topics/t"
        body = cluster.ensemble.dump()[path].data
        assert body is not None
        await cluster.brokers[1].store.set(path, body.replace(b'"partitions":{', b'"partitions":{"1":[1],'))
        await cluster.catch_up(2)
        assert cluster.assignment() == ReplicaAssignment((2, 1))
        assert cluster.state(TopicPartition("t", 1)) == PartitionState(1, (1,), 0, 1)

    run(scenario)


@pytest.mark.parametrize("damaged", [b"{", b'{"partitions":{"0":["0"]},"version":3}'])
def test_a_malformed_topic_gets_the_replicas_that_the_controller_knows_and_keeps_no_other_from_its_move(damaged: bytes) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1], [1, 0], name="edited")
        await cluster.topic([0, 1])
        edited = TopicPartition("edited", 0)
        topic_id = cluster.controller.controller.context.topic_id("edited")
        targets = {edited: (2, 1), P: (2, 1)}
        await cluster.brokers[1].store.set(topic_path("edited"), damaged)
        assert await cluster.controller.controller.alter_reassignments(targets) == dict.fromkeys(targets)
        await cluster.settle()
        assert cluster.assignment(edited).adding_replicas == (2,)
        await cluster.brokers[1].store.set(topic_path("edited"), damaged)
        await cluster.catch_up(2, partition=edited)
        await cluster.catch_up(2)
        for partition in targets:
            assert cluster.assignment(partition) == ReplicaAssignment((2, 1))
            assert cluster.state(partition).leader == 2
        assert cluster.assignment(TopicPartition("edited", 1)) == ReplicaAssignment((1, 0))
        body = cluster.ensemble.dump()[topic_path("edited")].data
        assert decode_topic(topic_path("edited"), body).topic_id == topic_id

    run(scenario)


def test_a_partition_that_never_had_a_live_replica_is_made_where_it_is_moved_to() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.controller.topics.create_topics([NewTopic("t", assignments={0: [8, 9]})], timeout_ms=0)
        await cluster.settle()
        await move(cluster, 1, 2)
        assert cluster.assignment() == ReplicaAssignment((1, 2))
        assert cluster.state() == PartitionState(1, (1, 2), 0, 1)

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("writes", range(6))
def test_the_next_controller_goes_on_from_any_write_of_the_end_of_a_move(writes: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await move(cluster, 2, 3)
        cluster.controller.store.writes_left = writes
        with suppress(Crash):
            await cluster.catch_up(3)
        await cluster.settle()
        await cluster.kill(0)
        if writes == 0:
            await cluster.catch_up(3)
        assert cluster.assignment() == ReplicaAssignment((2, 3))
        assert cluster.state().leader == 2
        assert cluster.state().isr == (2, 3)
        assert P not in cluster.peers[1].replicas

    run(scenario, brokers=4)


@pytest.mark.slow
@pytest.mark.parametrize("writes", range(3))
def test_the_next_controller_goes_on_from_any_write_of_the_beginning_of_a_move(writes: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        cluster.controller.store.writes_left = writes
        with suppress(Crash):
            await move(cluster, 3, 2)
        await cluster.settle()
        await cluster.kill(0)
        assert cluster.assignment() == (ReplicaAssignment((3, 2, 1), (3,), (1,), (1, 2)) if writes else ReplicaAssignment((1, 2)))
        assert (P in cluster.peers[3].replicas) == (writes > 0)

    run(scenario, brokers=4)


def test_a_client_may_forbid_that_the_replication_factor_changes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        controller = cluster.controller.controller
        refused = (await controller.alter_reassignments({P: (0,)}, may_change_factor=False))[P]
        assert isinstance(refused, InvalidReplicationFactor)
        assert str(refused) == "The replication factor is changed from 2 to 1"
        assert cluster.assignment().replicas == (0, 1)
        assert (await controller.alter_reassignments({P: (2, 1)}, may_change_factor=False)) == {P: None}
        assert (await controller.alter_reassignments({P: (0, 2)}, may_change_factor=False)) == {P: None}  # while three are assigned
        assert isinstance((await controller.alter_reassignments({P: (0, 1, 2)}, may_change_factor=False))[P], InvalidReplicationFactor)

    run(scenario)
