"""Every write reaches the store and no reply comes back, so that each is asked for twice: what a broken connection to ZooKeeper does."""

import asyncio

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.znodes.layout import CONTROLLER, CONTROLLER_EPOCH, decode_topic, topic_path
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, P, new_ensemble, run


def test_a_broker_registers_and_becomes_controller_although_it_never_hears_that_it_did() -> None:
    async def scenario() -> None:
        ensemble = new_ensemble()
        broker = BrokerUnderTest(ensemble)
        broker.store.loses_replies = True
        await broker.start()
        assert ensemble.dump()["/brokers/ids/0"].ephemeral_owner == broker.store.session_id
        assert ensemble.dump()[CONTROLLER].ephemeral_owner == broker.store.session_id
        assert broker.controller.is_active
        assert (ensemble.dump()[CONTROLLER_EPOCH].data, broker.controller.context.epoch) == (b"1", 1)
        assert broker.controller.context.epoch_version == ensemble.dump()[CONTROLLER_EPOCH].version
        await broker.stop()

    asyncio.run(scenario())


def test_partitions_get_leaders_and_topics_go_although_the_controller_hears_of_no_write() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller
        await cluster.topic([1, 2, 0])
        controller.store.loses_replies = True
        await cluster.kill(1)
        assert cluster.state().leader == 2
        assert set(cluster.state().isr) <= {0, 2}
        assert cluster.peers[2].replicas[P] == (2, cluster.state().leader_epoch)
        await cluster.brokers[2].topics.create_topics([NewTopic("made", assignments={0: [2, 0]})], timeout_ms=50)
        await cluster.settle()
        assert cluster.peers[2].cluster.leader_of("made", 0) is not None
        await cluster.brokers[2].topics.delete_topics(["made"], timeout_ms=50)
        await cluster.settle()
        assert "/brokers/topics/made" not in cluster.ensemble.dump()
        assert "/admin/delete_topics/made" not in cluster.ensemble.dump()

    run(scenario)


def test_the_next_controller_knows_that_it_won() -> None:
    async def scenario(cluster: Cluster) -> None:
        for broker in cluster.brokers.values():
            broker.store.loses_replies = True
        await cluster.kill(0)
        assert cluster.controller.controller.context.epoch == 2
        assert {broker.controller.active_controller_id for broker in cluster.brokers.values()} == {cluster.controller.broker_id}

    run(scenario)


def test_topics_get_ids_from_the_next_controller_although_it_hears_of_no_write() -> None:
    async def scenario(cluster: Cluster) -> None:
        topics = [f"t{number}" for number in range(3)]
        for topic in topics:
            await cluster.topic([0, 1, 2], name=topic)
        cluster.brokers[0].controller._core.is_active = False  # so that it is its successor who finds topics without ids
        for topic in topics:
            await cluster.brokers[1].store.set(topic_path(topic), b'{"version":1,"partitions":{"0":[0,1,2]}}')
        for broker in cluster.brokers.values():
            broker.store.loses_replies = True
        await cluster.kill(0)
        context = cluster.controller.controller.context
        for topic in topics:
            stored = decode_topic(topic_path(topic), cluster.ensemble.dump()[topic_path(topic)].data)
            assert stored.topic_id is not None
            assert context.topic_id(topic) == stored.topic_id
            assert cluster.state(TopicPartition(topic, 0)).leader in {1, 2}

    run(scenario)
