"""The metadata store refuses what the controller writes: it is tried again, though nothing else happens."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import StoreError, StoreUnavailable
from ottla.controller.events.isr_changes import IsrChange
from ottla.controller.events.refused_writes import LONGEST_PAUSE_SECONDS
from ottla.controller.state.context import Leadership
from ottla.controller.state.request_batch import RequestBatch
from ottla.controller.store.metadata_store import Create, Delete, MetadataStore, Multi, Request, Result, SetData, Write
from ottla.controller.znodes.layout import (
    CONTROLLER,
    PREFERRED_REPLICA_ELECTION,
    ReplicaAssignment,
    broker_id_path,
    encode_broker,
    partition_state_path,
    partitions_path,
    topic_path,
)
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, P
from tests.support.virtual_time import in_virtual_time

FULL = StoreUnavailable("metadata.db", "disk full")


async def a_cluster(brokers: int = 2) -> Cluster:
    cluster = Cluster()
    for broker_id in range(brokers):
        settings = {"auto.leader.rebalance.enable": "false"}
        cluster.brokers[broker_id] = BrokerUnderTest(cluster.ensemble, broker_id, peers=cluster.peers, properties=settings, seed=broker_id)
        await cluster.brokers[broker_id].start()
        await cluster.settle()
    return cluster


async def end(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        await broker.stop()


class Refusing:
    """A store that refuses the controller's writes of one kind, all together or each."""

    def __init__(
        self, cluster: Cluster, is_refused: Callable[[Write], bool], *, alone: bool = False, store: MetadataStore | None = None
    ) -> None:
        self.times: list[float] = []
        self.refuses = True
        self._is_refused = is_refused
        self._alone = alone
        self._store = store or cluster.controller.store
        self._pipeline = self._store.pipeline
        self._store.pipeline = self._refusing  # type: ignore[method-assign]  # it breaks in the middle of a test

    async def _refusing(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        refused = [self.refuses and isinstance(each, Multi) and any(self._is_refused(part) for part in each.writes) for each in requests]
        if not any(refused):
            return await self._pipeline(requests)
        self.times.append(asyncio.get_running_loop().time())
        if not self._alone:
            raise FULL
        return [FULL if no else (await self._pipeline([each]))[0] for each, no in zip(requests, refused, strict=True)]


def creates_state(write: Write) -> bool:
    return not isinstance(write, SetData) and write.path.endswith("/state")


@in_virtual_time
async def test_a_new_topic_gets_its_leaders_when_the_store_takes_them() -> None:
    for alone in (False, True):
        cluster = await a_cluster()
        store = Refusing(cluster, creates_state, alone=alone)
        await cluster.brokers[0].topics.create_topics([NewTopic("t", assignments={0: [1, 0]})], timeout_ms=0)
        await cluster.settle()
        assert len(store.times) == 1
        assert "/brokers/topics/t/partitions/0/state" not in cluster.ensemble.dump()
        store.refuses = False
        await asyncio.sleep(2)
        await cluster.settle()
        assert cluster.state().leader == 1
        assert cluster.peers[1].replicas[P] == (1, 0)
        assert cluster.peers[0].cluster.leader_of("t", 0)[0] == 1
        await end(cluster)


@in_virtual_time
async def test_the_pauses_grow_and_end_with_the_refusals() -> None:
    cluster = await a_cluster()
    store = Refusing(cluster, creates_state)
    await cluster.brokers[0].topics.create_topics([NewTopic("t", assignments={0: [1, 0]})], timeout_ms=0)
    await asyncio.sleep(20)
    pauses = [round(later - before) for before, later in zip(store.times, store.times[1:], strict=False)]
    assert pauses == [1, 2, 4, 8]
    assert max(pauses) < LONGEST_PAUSE_SECONDS
    store.refuses = False
    await asyncio.sleep(12)
    assert cluster.state().leader == 1
    store.refuses = True
    before = asyncio.get_running_loop().time()
    await cluster.brokers[0].topics.create_topics([NewTopic("u", assignments={0: [1, 0]})], timeout_ms=0)
    await asyncio.sleep(2)
    assert [round(time - before) for time in store.times[5:]] == [0, 1]
    await end(cluster)


@in_virtual_time
async def test_a_deletion_goes_on() -> None:
    cluster = await a_cluster()
    await cluster.topic([1, 0])
    store = Refusing(cluster, lambda write: isinstance(write, SetData))
    await cluster.brokers[0].topics.delete_topics(["t"], timeout_ms=0)
    await cluster.settle()
    assert store.times
    store.refuses = False
    await asyncio.sleep(2)
    await cluster.settle()
    assert "/brokers/topics/t" not in cluster.ensemble.dump()
    await end(cluster)


@in_virtual_time
async def test_a_deletion_goes_on_if_the_return_of_the_broker_that_it_waits_for_is_interrupted() -> None:
    cluster = Cluster(on_zookeeper=True)
    for broker_id in range(3):
        await cluster.start(broker_id)
    await cluster.topic([1, 2])
    await cluster.kill(2)
    await cluster.brokers[0].topics.delete_topics(["t"], timeout_ms=0)
    await cluster.brokers[0].topics.create_topics([NewTopic("u", assignments={0: [2]})], timeout_ms=0)
    await cluster.settle()
    store = Refusing(cluster, creates_state)
    await cluster.start(2)
    assert store.times
    assert topic_path("t") in cluster.ensemble.dump()
    store.refuses = False
    await asyncio.sleep(2)
    await cluster.settle()
    assert topic_path("t") not in cluster.ensemble.dump()
    assert cluster.state(TopicPartition("u", 0)).leader == 2
    await end(cluster)


@in_virtual_time
async def test_a_reassignment_that_has_begun_goes_on() -> None:
    cluster = await a_cluster()
    await cluster.topic([0])
    store = Refusing(cluster, lambda write: isinstance(write, SetData) and write.path.endswith("/state"))
    with pytest.raises(StoreUnavailable):
        await cluster.controller.controller.alter_reassignments({P: [0, 1]})
    await cluster.settle()
    assert cluster.assignment().adding_replicas == (1,)
    assert P not in cluster.peers[1].replicas
    store.refuses = False
    await asyncio.sleep(2)
    await cluster.settle()
    assert P in cluster.peers[1].replicas
    epoch = cluster.state().leader_epoch
    await asyncio.sleep(10)
    assert cluster.state().leader_epoch == epoch, "it is continued once"
    await cluster.catch_up(1)
    assert cluster.assignment() == ReplicaAssignment((0, 1))
    await end(cluster)


@in_virtual_time
async def test_a_broker_that_died_beside_another_change_is_noticed() -> None:
    cluster = await a_cluster()
    await cluster.topic([1, 0])
    await cluster.brokers[0].topics.create_topics([NewTopic("u", assignments={0: [2]})], timeout_ms=0)
    await cluster.settle()
    newcomer = BrokerUnderTest(cluster.ensemble, 2, peers=cluster.peers)
    session_id = await newcomer.store.open_session()
    dead = cluster.brokers.pop(1)
    await dead.controller.shutdown()
    store = Refusing(cluster, creates_state)
    cluster.ensemble.expire(dead.store.session_id)
    cluster.ensemble.write(session_id, Create(broker_id_path(2), encode_broker(newcomer.registration()), ephemeral=True))
    await cluster.settle()
    assert store.times
    store.refuses = False
    await asyncio.sleep(2)
    await cluster.settle()
    assert cluster.state().leader == 0
    assert cluster.state(TopicPartition("u", 0)).leader == 2
    await newcomer.store.close()
    await end(cluster)


@in_virtual_time
async def test_who_is_not_controller_any_more_tries_nothing() -> None:
    cluster = await a_cluster()
    store = Refusing(cluster, creates_state)
    await cluster.brokers[0].topics.create_topics([NewTopic("t", assignments={0: [1, 0]})], timeout_ms=0)
    await cluster.settle()
    await cluster.brokers[1].store.delete("/controller")
    await cluster.settle()
    assert cluster.state().leader == 1
    tried = len(store.times)
    await asyncio.sleep(10)
    assert len(store.times) == tried
    await end(cluster)


async def check_takes_over(cluster: Cluster, heir: BrokerUnderTest) -> None:
    """Broker 1, the heir, is controller soon, and leader; then the cluster ends."""
    await asyncio.sleep(3)
    await cluster.settle()
    assert heir.controller.is_active
    assert cluster.state().leader == 1
    await end(cluster)


@in_virtual_time
async def test_a_controller_is_elected_once_the_store_takes_it() -> None:
    cluster = await a_cluster()
    await cluster.topic([0, 1])
    heir = cluster.brokers[1]
    store = Refusing(cluster, lambda write: write.path == CONTROLLER, store=heir.store)
    await cluster.kill(0)
    assert len(store.times) == 1
    await asyncio.sleep(9)
    assert len(store.times) == 5
    assert not heir.controller.is_active
    store.refuses = False
    await check_takes_over(cluster, heir)


@in_virtual_time
async def test_a_takeover_that_fails_is_repeated_after_a_pause() -> None:
    cluster = await a_cluster()
    await cluster.topic([0, 1])
    heir = cluster.brokers[1]
    store = Refusing(cluster, lambda write: write.path.endswith("/state"), store=heir.store)
    await cluster.kill(0)
    await asyncio.sleep(9)
    assert len(store.times) == 5
    assert "/controller" not in cluster.ensemble.dump(), "another broker may be elected meanwhile"
    store.refuses = False
    await check_takes_over(cluster, heir)


@in_virtual_time
async def test_a_controller_whose_disk_is_full_at_once_takes_over_later() -> None:
    cluster = await a_cluster()
    await cluster.topic([0, 1])
    heir = cluster.brokers[1]
    is_full = is_mended = False
    pipeline = heir.store.pipeline

    async def filling(requests: Sequence[Request]) -> list[Result | StoreError]:
        nonlocal is_full
        if is_full and any(isinstance(each, Create | Delete | SetData | Multi) for each in requests):
            raise FULL
        outcomes = await pipeline(requests)
        is_full = is_full or (not is_mended and any(isinstance(each, Multi) and each.writes[0].path == CONTROLLER for each in requests))
        return outcomes

    heir.store.pipeline = filling  # type: ignore[method-assign]  # it breaks in the middle of a test
    await cluster.kill(0)
    await asyncio.sleep(10)
    assert is_full
    assert not heir.controller.is_active
    is_full, is_mended = False, True
    await check_takes_over(cluster, heir)


@in_virtual_time
async def test_what_a_fault_left_out_is_done_later() -> None:
    cluster = await a_cluster()
    await cluster.topic([1, 0])
    elections = cluster.controller.controller._core.elections
    elect, faults = elections.elect_offline, 2

    async def faulty(partitions: Sequence[TopicPartition], batch: RequestBatch, *, unclean: bool | None = None) -> list[TopicPartition]:
        nonlocal faults
        faults -= 1
        if faults >= 0:
            raise RuntimeError("a fault")
        return await elect(partitions, batch, unclean=unclean)

    elections.elect_offline = faulty  # type: ignore[method-assign]  # a fault in the middle of a test
    await cluster.kill(1)
    assert cluster.state().leader == 1
    await asyncio.sleep(4)
    await cluster.settle()
    assert cluster.state().leader == 0
    await end(cluster)


SECOND = TopicPartition("t", 1)
"""The partition beside P, whose state nobody may write, as when it belongs to another identity."""


def changes_state(write: Write) -> bool:
    return isinstance(write, SetData) and write.path == partition_state_path(P)


@in_virtual_time
async def test_a_partition_whose_state_cannot_be_written_holds_up_no_election_of_others() -> None:
    cluster = await a_cluster()
    await cluster.topic([1, 0], [1, 0])
    store = Refusing(cluster, changes_state, alone=True)
    await cluster.kill(1)
    assert (cluster.state().leader, cluster.state(SECOND).leader) == (1, 0)
    assert cluster.peers[0].replicas[SECOND] == (0, cluster.state(SECOND).leader_epoch)
    store.refuses = False
    await asyncio.sleep(2)
    await cluster.settle()
    assert cluster.peers[0].replicas[P] == (0, cluster.state().leader_epoch)
    await end(cluster)


@in_virtual_time
async def test_a_partition_whose_state_cannot_be_written_leaves_the_cluster_a_controller() -> None:
    cluster = await a_cluster()
    await cluster.topic([0, 1], [0, 1])
    heir = cluster.brokers[1]
    store = Refusing(cluster, changes_state, alone=True, store=heir.store)
    await cluster.kill(0)
    assert heir.controller.is_active
    assert (cluster.state().leader, cluster.state(SECOND).leader) == (0, 1)
    store.refuses = False
    await check_takes_over(cluster, heir)


@in_virtual_time
async def test_an_isr_that_cannot_be_written_holds_up_no_change_of_others() -> None:
    cluster = await a_cluster()
    await cluster.topic([0, 1], [0, 1])
    Refusing(cluster, changes_state, alone=True)
    controller = cluster.controller.controller
    results = await controller.alter_isr(0, controller.broker_epoch, dict.fromkeys((P, SECOND), IsrChange(0, (0,), 0)))
    assert results[P] is FULL
    assert results[SECOND] == Leadership(cluster.state(SECOND), 1)
    assert (cluster.state().isr, cluster.state(SECOND).isr) == ((0, 1), (0,))
    await end(cluster)


@in_virtual_time
async def test_a_topic_that_cannot_be_created_or_deleted_holds_up_no_other_one() -> None:
    cluster = await a_cluster()
    store = Refusing(cluster, lambda write: isinstance(write, Create) and write.path == partitions_path("t"), alone=True)
    new = [NewTopic(name, assignments={0: [1, 0]}) for name in ("t", "u")]
    await cluster.brokers[0].topics.create_topics(new, timeout_ms=0)
    await cluster.settle()
    assert [partition.topic for partition in cluster.peers[1].replicas] == ["u"]
    store.refuses = False
    await asyncio.sleep(2)
    await cluster.settle()
    assert {partition.topic for partition in cluster.peers[1].replicas} == {"t", "u"}
    store = Refusing(cluster, lambda write: isinstance(write, Delete) and write.path == topic_path("t"), alone=True)
    await cluster.brokers[0].topics.delete_topics(["t", "u"], timeout_ms=0)
    await cluster.settle()
    assert topic_path("t") in cluster.ensemble.dump()
    assert topic_path("u") not in cluster.ensemble.dump()
    store.refuses = False
    await asyncio.sleep(2)
    await cluster.settle()
    assert topic_path("t") not in cluster.ensemble.dump()
    await end(cluster)


@in_virtual_time
async def test_a_state_that_was_written_before_a_refusal_is_sent_later() -> None:
    """Otherwise the leader stays in its old epoch, in which it may change no ISR: acks=all would wait for the dead brokers."""
    cluster = await a_cluster(3)
    await cluster.topic([0, 1, 2])
    store = Refusing(cluster, lambda write: isinstance(write, SetData) and b'"isr":[0]' in (write.data or b""))
    dead = [cluster.brokers.pop(broker_id) for broker_id in (1, 2)]
    for broker in dead:
        await broker.controller.shutdown()
    for broker in dead:
        cluster.ensemble.expire(broker.store.session_id)
    await cluster.settle()
    assert len(store.times) == 1
    assert (cluster.state().leader_epoch, cluster.state().isr) == (1, (0, 2))
    await asyncio.sleep(2)
    await cluster.settle()
    assert cluster.peers[0].replicas[P] == (0, 1)
    assert not cluster.controller.controller.context.unsent
    await end(cluster)


@in_virtual_time
async def test_a_partition_whose_state_cannot_be_written_holds_up_no_reassignment_of_others() -> None:
    cluster = await a_cluster()
    await cluster.topic([0], [0])
    store = Refusing(cluster, changes_state, alone=True)
    await cluster.controller.controller.alter_reassignments({P: [0, 1], SECOND: [0, 1]})
    await cluster.settle()
    assert cluster.peers[1].replicas == {SECOND: (0, 1)}
    store.refuses = False
    await asyncio.sleep(2)
    await cluster.settle()
    assert cluster.peers[1].replicas == {P: (0, 1), SECOND: (0, 1)}
    await cluster.catch_up(1)
    assert cluster.assignment() == ReplicaAssignment((0, 1))
    await end(cluster)


@in_virtual_time
async def test_the_end_of_a_reassignment_that_cannot_be_written_holds_up_no_other_one() -> None:
    def changes_leader(write: Write) -> bool:
        return isinstance(write, SetData) and write.path == partition_state_path(P) and b'"leader":1' in (write.data or b"")

    for is_refused in (changes_leader, lambda write: isinstance(write, SetData) and write.path == topic_path("t")):
        cluster = await a_cluster()
        await cluster.topic([0])
        await cluster.topic([0], name="u")
        other = TopicPartition("u", 0)
        await cluster.controller.controller.alter_reassignments({P: [1], other: [1]})
        await cluster.settle()
        # Both are complete at once, and end together.
        store = Refusing(cluster, is_refused, alone=True)
        state = {partition: cluster.state(partition) for partition in (P, other)}
        changes = {partition: IsrChange(state[partition].leader_epoch, (0, 1), 1) for partition in (P, other)}
        results = await cluster.controller.controller.alter_isr(0, cluster.brokers[0].controller.broker_epoch, changes)
        assert all(isinstance(result, Leadership) for result in results.values())
        await cluster.settle()
        assert cluster.assignment(other) == ReplicaAssignment((1,))
        assert cluster.peers[1].replicas[other] == (1, cluster.state(other).leader_epoch)
        assert cluster.assignment().is_reassigning
        if is_refused is changes_leader:
            assert P in cluster.peers[0].replicas, "the log of a replica that may be elected is not deleted"
        store.refuses = False
        await asyncio.sleep(4)
        await cluster.settle()
        assert cluster.assignment() == ReplicaAssignment((1,))
        assert P not in cluster.peers[0].replicas
        await end(cluster)


@in_virtual_time
async def test_a_reassignment_whose_begin_cannot_be_written_is_an_error_and_others_begin() -> None:
    cluster = await a_cluster()
    await cluster.topic([0])
    await cluster.topic([0], name="u")
    other = TopicPartition("u", 0)
    Refusing(cluster, lambda write: isinstance(write, SetData) and write.path == topic_path("t"), alone=True)
    results = await cluster.controller.controller.alter_reassignments({P: [0, 1], other: [0, 1]})
    assert results == {P: FULL, other: None}
    await cluster.settle()
    assert not cluster.assignment().is_reassigning
    assert cluster.peers[1].replicas == {other: (0, 1)}
    await end(cluster)


def test_a_state_that_is_refused_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def scenario() -> None:
        cluster = await a_cluster()
        await cluster.topic([0, 1], [0, 1])
        store = Refusing(cluster, changes_state, alone=True)
        controller = cluster.controller.controller

        async def propose() -> int:
            caplog.clear()
            await controller.alter_isr(0, controller.broker_epoch, {P: IsrChange(0, (0,), 0)})
            return caplog.text.count("their states cannot be written")

        assert [await propose() for _ in range(3)] == [1, 0, 0]
        store.refuses = False
        assert await propose() == 0
        assert cluster.state().isr == (0,)
        await end(cluster)

    scenario()


@in_virtual_time
async def test_an_order_that_cannot_be_removed_leaves_the_cluster_a_controller() -> None:
    cluster = await a_cluster()
    await cluster.topic([0, 1])
    await cluster.brokers[0].store.create(PREFERRED_REPLICA_ELECTION, b"{}")
    Refusing(cluster, lambda write: write.path == PREFERRED_REPLICA_ELECTION, alone=True, store=cluster.brokers[1].store)
    await cluster.kill(0)
    assert cluster.brokers[1].controller.is_active
    await end(cluster)
