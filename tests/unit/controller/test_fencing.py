"""A controller whose session ended, or whom another has deposed, decides, writes and sends nothing more."""

import asyncio

import pytest

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import ControllerMoved, NotController
from ottla.controller.events.isr_changes import IsrChange
from ottla.controller.znodes.layout import PartitionState
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import Cluster, P, run


def test_what_waits_when_the_session_ends_is_refused_and_nothing_is_sent() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1], [1, 0])
        deposed = cluster.brokers[0]
        epoch = deposed.controller.broker_epoch
        told = {broker_id: len(peer.requests) for broker_id, peer in cluster.peers.items()}
        deposed.store.latency = 50
        running = asyncio.create_task(deposed.controller.alter_isr(0, epoch, {P: IsrChange(0, (0,), 0)}))
        waiting = asyncio.create_task(deposed.controller.elect_leaders(None, unclean=False))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cluster.ensemble.expire(deposed.store.session_id)
        await asyncio.sleep(0)
        assert not deposed.controller.is_active
        for asked in (waiting, running):
            with pytest.raises(NotController):
                await asked
        deposed.store.latency = 0
        await cluster.settle()
        for broker_id, peer in cluster.peers.items():
            assert all(request.controller_epoch == 2 for request in peer.requests[told[broker_id] :])
        assert cluster.state().controller_epoch == 2

    run(scenario)


def test_no_write_of_an_old_epoch_is_made() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.topic([0, 1])
        await cluster.brokers[1].store.set("/controller_epoch", b"9")
        deposed = cluster.brokers[0].controller
        with pytest.raises(ControllerMoved):
            await deposed.alter_reassignments({P: (2, 1)})
        assert not cluster.assignment().is_reassigning
        with pytest.raises(ControllerMoved):
            await deposed.alter_isr(0, deposed.broker_epoch, {P: IsrChange(0, (0,), 0)})
        assert cluster.state() == PartitionState(0, (0, 1), 0, 1)

    run(scenario)


def test_a_topic_on_brokers_that_do_not_exist_can_be_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.controller.topics.create_topics([NewTopic("ghost", assignments={0: [7], 1: [0]})], timeout_ms=0)
        await cluster.settle()
        assert cluster.state(TopicPartition("ghost", 1)).leader == 0
        assert await cluster.controller.topics.delete_topics(["ghost"]) == {"ghost": None}
        await cluster.settle()
        assert not [path for path in cluster.ensemble.dump() if "ghost" in path]
        assert not cluster.peers[0].replicas

    run(scenario)


def test_a_topic_on_brokers_that_do_not_exist_is_deleted_by_the_next_controller_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.controller.topics.create_topics([NewTopic("ghost", assignments={0: [7]})], timeout_ms=0)
        await cluster.kill(0)
        await cluster.controller.topics.delete_topics(["ghost"])
        await cluster.settle()
        assert not [path for path in cluster.ensemble.dump() if "ghost" in path]

    run(scenario)
