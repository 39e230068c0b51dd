"""Malformed znodes: what one of them stops, and what goes on."""

import asyncio

import pytest

from ottla.controller.znodes.changes import encode_log_dir_event, encode_partitions
from ottla.controller.znodes.layout import (
    CONTROLLER,
    FEATURE,
    broker_id_path,
    delete_topic_path,
    encode_partition_state,
    partition_state_path,
    topic_path,
)
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, P, run, until


def test_a_topic_whose_configuration_cannot_be_understood_keeps_no_other_from_its_next_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1])
        await cluster.topic([2, 0], name="u")
        await cluster.brokers[0].store.set("/config/topics/t", b"no JSON")
        await cluster.kill(1)
        await cluster.kill(2)
        assert cluster.state().leader == -1
        assert cluster.state(TopicPartition("u", 0)).leader == 0

    run(scenario)


def test_a_malformed_order_of_elections_does_not_keep_brokers_from_becoming_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        order = "/admin/preferred_replica_election"
        await cluster.brokers[0].store.create(order, b"{")
        await cluster.settle()
        assert order not in cluster.ensemble.dump()
        cluster.brokers[0].controller._core.is_active = False  # so that it is its successor who finds the next one
        await cluster.brokers[1].store.create(order, b'{"version":1}')
        await cluster.kill(0)
        await until(lambda: cluster.brokers[1].controller.is_active)
        await cluster.settle()
        assert cluster.state().leader == 1
        assert order not in cluster.ensemble.dump()

    run(scenario, brokers=2)


def test_a_malformed_topic_keeps_no_broker_from_becoming_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.topic([0, 1], name="edited")
        await cluster.brokers[1].store.set(topic_path("edited"), b'{"partitions":{"0":["0","1"]},"version":3}')
        await cluster.kill(0)
        await until(lambda: cluster.brokers[1].controller.is_active)
        await cluster.settle()
        assert cluster.state().leader == 1
        assert "edited" not in cluster.brokers[1].controller._core.context.assignments

    run(scenario, brokers=2)


@pytest.mark.parametrize("damaged", [b"", b"{", b'{"version":5,"endpoints":[7]}'])
def test_a_malformed_registration_keeps_no_broker_from_becoming_controller(damaged: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 2, 1], [2, 1, 0])
        store = cluster.brokers[1].store
        registration, _ = await store.get(broker_id_path(2))
        assert registration is not None
        await store.set(broker_id_path(2), damaged)
        await cluster.settle()
        assert cluster.state(TopicPartition("t", 1)).leader == 2
        cluster.brokers[2].controller._core.is_active = False
        await cluster.kill(0)
        active = cluster.brokers[1].controller
        await until(lambda: active.is_active)
        await cluster.settle()
        assert set(active.context.brokers) == {1}
        assert cluster.state().leader == cluster.state(TopicPartition("t", 1)).leader == 1
        await cluster.start(3)
        assert set(active.context.brokers) == {1, 3}
        assert len([line for line in caplog.messages if "broker 2 counts as not alive" in line and "/brokers/ids/2: " in line]) == 1
        await store.set(broker_id_path(2), registration)
        await cluster.settle()
        assert set(active.context.brokers) == {1, 2, 3}
        await cluster.catch_up(2)
        assert cluster.peers[2].replicas[P][0] == 1

    run(scenario)


def test_malformed_features_keep_no_broker_from_becoming_controller() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.brokers[1].store.set(FEATURE, b"{")
        await cluster.kill(0)
        await until(lambda: cluster.brokers[1].controller.is_active)
        await cluster.settle()
        assert cluster.state().leader == 1
        assert cluster.ensemble.dump()[FEATURE].data == b"{"

    run(scenario, brokers=2)


def test_a_registration_that_becomes_malformed_leaves_its_broker_alive() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await cluster.brokers[1].store.set(broker_id_path(1), b"{")
        await cluster.start(3)
        await cluster.kill(2)
        assert cluster.state().leader == 1
        assert set(cluster.controller.controller.context.brokers) == {0, 1, 3}

    run(scenario)


def test_a_broker_waits_for_the_session_of_its_earlier_life_if_the_registration_is_malformed() -> None:
    async def scenario(cluster: Cluster) -> None:
        before = cluster.brokers[1]
        await before.store.set(broker_id_path(1), b"{")
        again = BrokerUnderTest(cluster.ensemble, 1, peers=dict(cluster.peers))
        starting = asyncio.ensure_future(again.start())
        await cluster.settle()
        assert not starting.done()
        cluster.ensemble.expire(before.store.session_id)
        before.store.on_session_expired(lambda: None)
        await before.controller.shutdown()
        await starting
        await again.stop()

    run(scenario)


def test_a_topic_with_a_malformed_znode_can_be_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.topic([0, 1], name="edited")
        store = cluster.brokers[1].store
        await store.set(topic_path("edited"), b"{")
        await cluster.kill(0)
        await until(lambda: cluster.brokers[1].controller.is_active)
        await store.create(delete_topic_path("edited"), b"")
        await cluster.settle()
        left = [path for path in cluster.ensemble.dump() if path.endswith("/edited") or "/edited/" in path]
        assert left == []
        await store.create(delete_topic_path("edited"), b"")
        await cluster.settle()
        assert delete_topic_path("edited") not in cluster.ensemble.dump()
        assert "/brokers/topics/t" in cluster.ensemble.dump()

    run(scenario, brokers=2)


def test_a_topic_is_known_when_its_znode_is_repaired() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        store = cluster.brokers[1].store
        data, _ = await store.get(topic_path("t"))
        await store.set(topic_path("t"), b"{")
        await cluster.kill(0)
        await until(lambda: cluster.brokers[1].controller.is_active)
        await cluster.settle()
        await store.set(topic_path("t"), data)
        await cluster.settle()
        assert cluster.state().leader == 1

    run(scenario, brokers=2)


def test_a_malformed_notification_of_changed_states_does_not_hold_up_the_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        state = cluster.state()
        store = cluster.brokers[0].store
        await store.set(partition_state_path(P), encode_partition_state(state._replace(isr=(0,))))
        await store.create("/isr_change_notification/isr_change_", b"{", sequential=True)
        await store.create("/isr_change_notification/isr_change_", encode_partitions([P]), sequential=True)
        await cluster.settle()
        told = cluster.peers[1].cluster.partition("t", 0)
        assert told is not None
        assert [*told.isr] == [0]
        assert await store.children("/isr_change_notification") == []

    run(scenario, brokers=2)


def test_a_malformed_report_of_a_failed_log_directory_does_not_hold_up_the_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        cluster.peers[1].error_of = lambda _: 56
        store = cluster.brokers[1].store
        await store.create("/log_dir_event_notification/log_dir_event_", b"{", sequential=True)
        await store.create("/log_dir_event_notification/log_dir_event_", encode_log_dir_event(1), sequential=True)
        await cluster.settle()
        assert cluster.state().leader == 2
        assert await cluster.brokers[0].store.children("/log_dir_event_notification") == []

    run(scenario)


def test_a_state_that_cannot_be_decoded_costs_no_other_partition_its_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1], [1, 0])
        path = partition_state_path(P)
        await cluster.brokers[1].store.set(path, b"damaged")
        await cluster.brokers[1].store.delete(CONTROLLER)
        await asyncio.wait_for(cluster.settle(), 30)
        assert cluster.controller.controller.context.leaderships.keys() == {TopicPartition("t", 1)}
        assert cluster.ensemble.dump()[path].data == b"damaged", "an operator may repair it"

    run(scenario)


def test_a_state_that_becomes_malformed_does_not_stop_a_controlled_shutdown() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 0], [1, 2])
        await cluster.brokers[2].store.set(partition_state_path(P), b"{")
        leaving = cluster.brokers[1].controller
        assert await cluster.controller.controller.controlled_shutdown(1, leaving.broker_epoch) == []
        await cluster.settle()
        assert cluster.state(TopicPartition("t", 1)).leader == 2

    run(scenario)


def test_a_partition_without_replicas_does_not_keep_other_leaderships_from_going_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([1, 2])
        await cluster.topic([2], name="edited")
        store = cluster.brokers[2].store
        await store.set(topic_path("edited"), b'{"partitions":{"0":[]},"version":3}')
        await cluster.kill(0)
        await cluster.kill(1)
        assert cluster.state().leader == 2
        await cluster.start(1)
        await cluster.catch_up(1)
        await cluster.controller.controller.rebalance_leaders()
        await cluster.settle()
        assert cluster.state().leader == 1

    run(scenario)
