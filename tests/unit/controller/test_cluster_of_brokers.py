"""Three brokers over one tree: deaths, restarts, failovers, elections and ISR changes."""

import asyncio

import pytest

from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import (
    BrokerIdInUse,
    BrokerIdNotRegistered,
    ElectionNotNeeded,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidAdminRequest,
    InvalidUpdateVersion,
    NotController,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    StoreUnavailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.controller.events.isr_changes import IsrChange
from ottla.controller.state.context import Leadership
from ottla.controller.znodes.changes import decode_producer_id_block, encode_log_dir_event, encode_partitions
from ottla.controller.znodes.layout import (
    PartitionState,
)
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, P, run, until


def test_one_broker_is_controller_and_all_know_who() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert cluster.controller.broker_id == 0
        assert {broker.controller.active_controller_id for broker in cluster.brokers.values()} == {0}
        assert all(set(broker.receiver.cluster.brokers) == {0, 1, 2} for broker in cluster.brokers.values())
        with pytest.raises(NotController):
            await cluster.brokers[1].controller.elect_leaders(None, unclean=False)

    run(scenario)


def test_replicas_are_told_their_states_and_everybody_the_metadata() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2], [2, 0])
        assert cluster.peers[1].replicas == {P: (1, 0)}
        assert cluster.peers[2].replicas == {P: (1, 0), TopicPartition("t", 1): (2, 0)}
        assert all(peer.cluster.leader_of("t", 1) == (2, 0) for peer in cluster.peers.values())
        told = next(request for request in cluster.peers[2].requests if isinstance(request, LeaderAndIsrRequest))
        assert {leader.broker_id for leader in told.live_leaders} == {1, 2}
        assert all(state.is_new for topic in told.topic_states for state in topic.partition_states)

    run(scenario)


def test_a_dead_leader_is_replaced_and_leaves_every_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([2, 1, 0], [1, 2, 0])
        await cluster.topic([2], name="solo")
        await cluster.kill(2)
        assert cluster.state() == PartitionState(1, (1, 0), 1, 1)
        assert cluster.state(TopicPartition("t", 1)) == PartitionState(1, (1, 0), 1, 1)
        assert cluster.state(TopicPartition("solo", 0)) == PartitionState(-1, (2,), 1, 1)
        state = cluster.peers[0].cluster.partition("t", 0)
        assert state is not None
        assert state.offline_replicas == (2,)
        await cluster.start(2)
        assert cluster.state(TopicPartition("solo", 0)) == PartitionState(2, (2,), 2, 1)
        assert cluster.peers[2].replicas[P] == (1, 1)

    run(scenario)


def test_the_death_of_the_controller_elects_another_that_does_the_rest() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.kill(0)
        assert cluster.controller.broker_id in {1, 2}
        assert cluster.state() == PartitionState(1, (1,), 1, 2)
        assert all(cluster.brokers[each].receiver.cluster.controller_epoch == 2 for each in (1, 2))
        await cluster.start(0)
        assert cluster.brokers[0].controller.active_controller_id == cluster.controller.broker_id
        assert cluster.peers[0].replicas == {P: (1, 1)}

    run(scenario)


def test_a_broker_id_is_used_by_one_at_a_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        briefly = {"zookeeper.session.timeout.ms": "40"}
        double = BrokerUnderTest(cluster.ensemble, 1, peers=dict(cluster.peers), properties=briefly)
        with pytest.raises(BrokerIdInUse, match=r"give every broker its own id"):
            await double.start()
        await double.stop()

    run(scenario)


def test_a_broker_waits_for_the_session_of_its_earlier_life() -> None:
    async def scenario(cluster: Cluster) -> None:
        before = cluster.brokers[1]
        starting = asyncio.ensure_future(BrokerUnderTest(cluster.ensemble, 1, peers=dict(cluster.peers)).start())
        await cluster.settle()
        assert not starting.done()
        cluster.ensemble.expire(before.store.session_id)
        before.store.on_session_expired(lambda: None)
        await before.controller.shutdown()
        await starting

    run(scenario)


def test_a_deposed_controller_cannot_write_and_resigns() -> None:
    async def scenario(cluster: Cluster) -> None:
        deposed = cluster.brokers[0]
        await cluster.topic([0, 1], [1, 0])
        await cluster.brokers[1].store.set("/controller_epoch", b"9")
        with pytest.raises(Exception, match="another controller was elected after epoch 1"):
            await deposed.controller.alter_isr(0, deposed.controller.broker_epoch, {P: IsrChange(0, (0,), 0)})
        assert cluster.state() == PartitionState(0, (0, 1), 0, 1)

    run(scenario)


def test_an_expired_session_registers_anew_and_sees_everything_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 0])
        old_epoch = cluster.brokers[1].controller.broker_epoch
        cluster.ensemble.expire(cluster.brokers[1].store.session_id)
        await cluster.settle()
        assert cluster.brokers[1].controller.broker_epoch > old_epoch
        assert cluster.state() == PartitionState(0, (0,), 1, 1)
        cluster.ensemble.expire(cluster.brokers[0].store.session_id)
        await cluster.settle()
        assert cluster.controller.broker_id in {1, 2}
        await cluster.controller.topics.create_topics([NewTopic("u", assignments={0: [0, 1, 2]})])
        assert cluster.state(TopicPartition("u", 0)).isr == (0, 1, 2)

    run(scenario)


def test_a_removed_controller_node_leads_to_an_election() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.brokers[2].store.delete("/controller")
        await cluster.settle()
        epoch = cluster.controller.controller.context.epoch
        assert epoch == 2
        assert cluster.ensemble.dump()["/controller_epoch"].data == b"2"

    run(scenario)


def test_a_broker_that_leaves_under_control_hands_its_leaderships_over() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2], [2, 1])
        await cluster.topic([1], name="solo")
        leaving = cluster.brokers[1].controller.broker_epoch
        with pytest.raises(StaleBrokerEpoch):
            await cluster.controller.controller.controlled_shutdown(1, leaving - 1)
        assert await cluster.controller.controller.controlled_shutdown(1, leaving) == []
        assert cluster.state() == PartitionState(2, (2,), 1, 1)
        assert cluster.state(TopicPartition("t", 1)) == PartitionState(2, (2,), 1, 1)
        assert cluster.state(TopicPartition("solo", 0)).leader == 1

    run(scenario)


def test_a_leader_that_leaves_under_control_may_still_add_the_follower_that_succeeds_it() -> None:
    """As in a rolling restart, when the broker that was restarted before has not caught up with all partitions."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await cluster.kill(2)
        await cluster.start(2)
        leaving = cluster.brokers[1].controller.broker_epoch
        assert await cluster.controller.controller.controlled_shutdown(1, leaving) == [P]
        assert cluster.state().isr == (1,)
        await cluster.catch_up(2)
        assert await cluster.controller.controller.controlled_shutdown(1, leaving) == []
        assert (cluster.state().leader, cluster.state().isr) == (2, (2,))

    run(scenario)


def test_elections_on_demand() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([2, 1], [0, 1])
        await cluster.kill(2)
        controller = cluster.controller.controller
        results = await controller.elect_leaders([P, TopicPartition("t", 1), TopicPartition("x", 0)], unclean=False)
        assert isinstance(results[P], PreferredLeaderNotAvailable)
        assert str(results[P]) == "Failed to elect leader for partition t-0 under strategy PreferredReplicaPartitionLeaderElectionStrategy"
        assert isinstance(results[TopicPartition("t", 1)], ElectionNotNeeded)
        assert isinstance(results[TopicPartition("x", 0)], UnknownTopicOrPartition)
        await cluster.start(2)
        state = cluster.state()
        await controller.alter_isr(1, cluster.brokers[1].controller.broker_epoch, {P: IsrChange(state.leader_epoch, (1, 2), 1)})
        await cluster.brokers[0].store.create("/admin/preferred_replica_election", encode_partitions([P]))
        await cluster.settle()
        assert cluster.state() == PartitionState(2, (1, 2), state.leader_epoch + 1, 1)
        assert "/admin/preferred_replica_election" not in cluster.ensemble.dump()

    run(scenario)


def test_leaderships_go_back_where_too_many_are_elsewhere() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2], [1, 2], [2, 1])
        await cluster.kill(1)
        await cluster.start(1)
        controller = cluster.controller.controller
        await controller.rebalance_leaders()
        assert cluster.state().leader == 2, "the preferred replica is not in sync yet"
        epoch = cluster.brokers[2].controller.broker_epoch
        for index in (0, 1):
            state = cluster.state(TopicPartition("t", index))
            partition = TopicPartition("t", index)
            await controller.alter_isr(
                2, epoch, {partition: IsrChange(state.leader_epoch, (2, 1), controller.context.leaderships[partition][1])}
            )
        await controller.rebalance_leaders()
        assert [cluster.state(TopicPartition("t", index)).leader for index in range(3)] == [1, 1, 2]

    run(scenario)


@pytest.mark.slow
def test_a_session_that_cannot_be_renewed_at_once_is_renewed_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker = cluster.brokers[1]
        open_session = broker.store.open_session
        refusals = iter([StoreUnavailable("metadata.db", "disk full")])

        async def refuse() -> int:
            for refusal in refusals:
                raise refusal
            return await open_session()

        broker.store.open_session = refuse
        cluster.ensemble.expire(broker.store.session_id)
        await until(lambda: broker.store.session_id != 0 and 1 in cluster.controller.controller.context.brokers)

    run(scenario)


def test_an_unclean_leader_is_elected_only_when_the_topic_allows_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await cluster.kill(2)
        await cluster.kill(1)
        await cluster.start(2)
        assert cluster.state() == PartitionState(-1, (1,), 2, 1)
        await ConfigAdmin(cluster.brokers[0].store, 0, cluster.brokers[0].config).set_topic_configs(
            "t", {"unclean.leader.election.enable": "true"}
        )
        await cluster.controller.controller.enable_unclean_election("t")
        await cluster.settle()
        assert cluster.state() == PartitionState(2, (2,), 3, 1, leader_recovery_state=1)

    run(scenario)


def test_isr_changes_are_checked_written_and_told_to_all() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1, 2])
        controller = cluster.controller.controller
        epoch = cluster.brokers[0].controller.broker_epoch
        with pytest.raises(StaleBrokerEpoch):
            await controller.alter_isr(0, epoch - 1, {})
        with pytest.raises(BrokerIdNotRegistered):
            await controller.alter_isr(9, epoch, {})
        before = sum(isinstance(each, LeaderAndIsrRequest) for each in cluster.peers[1].requests)
        assert await controller.alter_isr(0, epoch, {P: IsrChange(0, (0, 1), 0)}) == {P: Leadership(PartitionState(0, (0, 1), 0, 1), 1)}
        assert await controller.alter_isr(0, epoch, {P: IsrChange(0, (0, 1), 0)}) == {P: Leadership(PartitionState(0, (0, 1), 0, 1), 1)}
        await cluster.settle()
        told = cluster.peers[2].cluster.partition("t", 0)
        assert told is not None
        assert told.isr == (0, 1)
        assert sum(isinstance(each, LeaderAndIsrRequest) for each in cluster.peers[1].requests) == before
        refused = {
            IsrChange(0, (0,), 0): InvalidUpdateVersion,
            IsrChange(-1, (0,), 1): FencedLeaderEpoch,
            IsrChange(5, (0,), 1): NotController,
            IsrChange(0, (0, 7), 1): IneligibleReplica,
            IsrChange(0, (0,), 1, leader_recovery_state=7): InvalidAdminRequest,
            IsrChange(0, (0,), 1, topic_id=b"of an older one!"): UnknownTopicId,
        }
        for change, error in refused.items():
            assert type((await controller.alter_isr(0, epoch, {P: change}))[P]) is error
        unknown = TopicPartition("x", 0)
        assert isinstance((await controller.alter_isr(0, epoch, {unknown: IsrChange(0, (0,), 0)}))[unknown], UnknownTopicOrPartition)

    run(scenario)


def test_a_failed_log_directory_moves_its_leaderships() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2], [2, 1])
        cluster.peers[1].error_of = lambda partition: 56 if partition == P else 0
        await cluster.brokers[1].store.create("/log_dir_event_notification/log_dir_event_", encode_log_dir_event(1), sequential=True)
        await cluster.settle()
        assert cluster.state() == PartitionState(2, (2,), cluster.state().leader_epoch, 1)
        assert cluster.state(TopicPartition("t", 1)).isr == (2, 1)
        assert await cluster.brokers[0].store.children("/log_dir_event_notification") == []
        told = cluster.peers[0].cluster.partition("t", 0)
        assert told is not None
        assert told.offline_replicas == (1,)

    run(scenario)


def test_blocks_of_producer_ids_never_overlap() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller.controller
        epochs = {broker_id: broker.controller.broker_epoch for broker_id, broker in cluster.brokers.items()}
        blocks = await asyncio.gather(*(controller.allocate_producer_id_block(each % 3, epochs[each % 3]) for each in range(6)))
        assert sorted((block.first, block.last) for block in blocks) == [(n * 1000, n * 1000 + 999) for n in range(6)]
        with pytest.raises(StaleBrokerEpoch):
            await controller.allocate_producer_id_block(1, 0)
        last = decode_producer_id_block(cluster.ensemble.dump()["/latest_producer_id_block"].data)
        assert last == blocks[-1]

    run(scenario)


def test_a_slow_broker_delays_nobody_else() -> None:
    async def scenario(cluster: Cluster) -> None:
        held = asyncio.Event()
        slow = cluster.peers[2]
        on_leader_and_isr = slow.on_leader_and_isr

        async def wait(request: LeaderAndIsrRequest):
            await held.wait()
            return await on_leader_and_isr(request)

        slow.on_leader_and_isr = wait
        await asyncio.wait_for(cluster.controller.topics.create_topics([NewTopic("t", assignments={0: [2, 1], 1: [1, 2]})]), timeout=10)
        await until(lambda: cluster.peers[1].replicas.get(P) == (2, 0))
        assert P not in slow.replicas
        held.set()
        await until(lambda: slow.replicas.get(P) == (2, 0))
        await until(lambda: any(isinstance(each, UpdateMetadataRequest) and each.topic_states for each in slow.requests))

    run(scenario)
