"""The metadata store refuses to change the znode of ordered reassignments: everything else goes on, and it is tried again."""

import asyncio

from ottla.controller.store.metadata_store import Create
from ottla.controller.znodes.changes import encode_reassignments
from ottla.controller.znodes.layout import REASSIGN_PARTITIONS, ReplicaAssignment, topic_path
from tests.support.controlled_cluster import Cluster, P
from tests.support.virtual_time import in_virtual_time
from tests.unit.controller.test_refused_writes import Refusing, a_cluster, end


async def order(cluster: Cluster) -> None:
    """P is to move to broker 1."""
    cluster.ensemble.write(cluster.brokers[1].store.session_id, Create(REASSIGN_PARTITIONS, encode_reassignments({P: (1,)})))
    await cluster.settle()


@in_virtual_time
async def test_a_reassignment_whose_order_cannot_be_removed_ends_once() -> None:
    cluster = await a_cluster()
    await cluster.topic([0])
    await order(cluster)
    store = Refusing(cluster, lambda write: write.path == REASSIGN_PARTITIONS, alone=True)
    await cluster.catch_up(1)
    assert cluster.assignment() == ReplicaAssignment((1,))
    assert cluster.peers[0].cluster.leader_of("t", 0)[0] == 1, "all brokers hear of it"
    epoch = cluster.state().leader_epoch
    await asyncio.sleep(10)
    assert REASSIGN_PARTITIONS in cluster.ensemble.dump()
    store.refuses = False
    await asyncio.sleep(20)
    assert REASSIGN_PARTITIONS not in cluster.ensemble.dump()
    assert cluster.state().leader_epoch == epoch
    await end(cluster)


@in_virtual_time
async def test_a_deletion_of_a_topic_whose_order_cannot_be_removed_goes_on() -> None:
    cluster = await a_cluster()
    await cluster.topic([0])
    await order(cluster)
    store = Refusing(cluster, lambda write: write.path == REASSIGN_PARTITIONS, alone=True)
    await cluster.brokers[1].topics.delete_topics(["t"], timeout_ms=0)
    await cluster.settle()
    assert topic_path("t") not in cluster.ensemble.dump()
    store.refuses = False
    await asyncio.sleep(20)
    assert REASSIGN_PARTITIONS not in cluster.ensemble.dump()
    await end(cluster)
