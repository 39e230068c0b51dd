"""When leaderships go back by themselves: five seconds after a failover and then by the configured interval, as in Apache Kafka."""

import asyncio

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.znodes.layout import PartitionState
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, P
from tests.support.virtual_time import in_virtual_time

INTERVAL = {"auto.leader.rebalance.enable": "true", "leader.imbalance.check.interval.seconds": "20"}


async def a_cluster_led_by_the_wrong_broker(**properties: str) -> Cluster:
    """Two brokers; the second should lead t-0 and does not."""
    cluster = Cluster()
    for broker_id in (0, 1):
        settings = INTERVAL | {name.replace("_", "."): value for name, value in properties.items()}
        cluster.brokers[broker_id] = BrokerUnderTest(cluster.ensemble, broker_id, peers=cluster.peers, properties=settings, seed=broker_id)
        await cluster.brokers[broker_id].start()
        await cluster.settle()
    await cluster.brokers[0].topics.create_topics([NewTopic("t", assignments={0: [1, 0]})], timeout_ms=0)
    await cluster.settle()
    await let_the_other_lead(cluster)
    return cluster


async def let_the_other_lead(cluster: Cluster) -> None:
    """Broker 1 leaves in order, and is back in the ISR at once."""
    await cluster.brokers[0].controller.controlled_shutdown(1, cluster.brokers[1].controller.broker_epoch)
    cluster.brokers[0].controller.context.shutting_down.clear()
    await cluster.catch_up(1)
    assert cluster.state().leader == 0


async def end(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        await broker.stop()


@in_virtual_time
async def test_the_first_turn_comes_five_seconds_after_the_failover_and_the_next_after_the_interval() -> None:
    cluster = await a_cluster_led_by_the_wrong_broker()
    await asyncio.sleep(4.5)
    assert cluster.state().leader == 0
    await asyncio.sleep(1)
    assert cluster.state().leader == 1
    await let_the_other_lead(cluster)
    await asyncio.sleep(18)
    assert cluster.state().leader == 0
    await asyncio.sleep(2)
    assert cluster.state().leader == 1
    await end(cluster)


@in_virtual_time
async def test_the_next_controller_begins_anew_and_the_former_one_has_ended() -> None:
    cluster = await a_cluster_led_by_the_wrong_broker()
    await asyncio.sleep(4)
    await cluster.brokers[1].store.delete("/controller")
    await cluster.settle()
    epoch = cluster.controller.controller.context.epoch
    assert epoch == 2
    await asyncio.sleep(4)
    assert cluster.state().leader == 0
    await asyncio.sleep(2)
    assert cluster.state() == PartitionState(1, (0, 1), cluster.state().leader_epoch, epoch)
    await end(cluster)


@in_virtual_time
async def test_nothing_goes_back_where_that_is_switched_off() -> None:
    cluster = await a_cluster_led_by_the_wrong_broker(auto_leader_rebalance_enable="false")
    await asyncio.sleep(50)
    assert cluster.state().leader == 0
    await end(cluster)


@in_virtual_time
async def test_nothing_goes_back_while_a_partition_moves() -> None:
    cluster = await a_cluster_led_by_the_wrong_broker()
    controller = cluster.controller.controller
    await cluster.brokers[0].topics.create_topics([NewTopic("moving", assignments={0: [0]})], timeout_ms=0)
    await cluster.settle()
    moving = TopicPartition("moving", 0)
    assert await controller.alter_reassignments({moving: [1]}) == {moving: None}
    await asyncio.sleep(10)
    assert cluster.state(P).leader == 0
    await cluster.catch_up(1, partition=moving)
    await asyncio.sleep(20)
    assert cluster.state(P).leader == 1
    await end(cluster)
