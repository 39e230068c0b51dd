"""Whatever happens to a cluster, once it is quiet and everybody is back, every partition is led and nothing is left half done."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import ControllerError, StoreError
from ottla.controller.events.isr_changes import IsrChange
from ottla.controller.state.context import Leadership
from ottla.controller.znodes.changes import encode_partitions, encode_reassignments
from ottla.controller.znodes.layout import (
    DELETE_TOPICS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    PartitionState,
    decode_topic,
    partition_state_path,
    topic_path,
)
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import Cluster, Crash

Step = tuple[Any, ...]
"""The name of one of Chronicle's methods, and what it takes."""

BROKERS = (0, 1, 2, 3)
NAMES = ("a", "b")

replicas = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True).map(tuple)
partition = st.builds(TopicPartition, st.sampled_from(NAMES), st.integers(0, 1))
broker = st.sampled_from(BROKERS)
STEP = st.one_of(
    st.tuples(st.just("kill"), broker),
    st.tuples(st.just("start"), broker),
    st.tuples(st.just("leave"), broker),
    st.tuples(st.just("expire"), broker),
    st.tuples(st.just("crash"), st.integers(0, 6)),
    st.tuples(st.just("depose")),
    st.tuples(st.just("create"), st.sampled_from(NAMES), st.lists(replicas, min_size=1, max_size=2)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("move"), st.dictionaries(partition, replicas, min_size=1, max_size=4)),
    st.tuples(st.just("move"), st.dictionaries(partition, st.none() | replicas, min_size=1, max_size=2)),
    st.tuples(st.just("order"), st.dictionaries(partition, replicas, min_size=1, max_size=2)),
    st.tuples(st.just("prefer"), st.none() | partition),
    st.tuples(st.just("grow"), partition),
    st.tuples(st.just("shrink"), partition),
    st.tuples(st.just("rebalance")),
)
CREATED = st.fixed_dictionaries({name: st.lists(replicas, min_size=2, max_size=2) for name in NAMES})
HISTORY = st.lists(STEP, min_size=1, max_size=25)


class Chronicle:
    """Carries a history out."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.dying: set[int] = set()

    async def play(self, created: dict[str, list[tuple[int, ...]]], history: list[Step]) -> None:
        for broker_id in BROKERS:
            await self.cluster.start(broker_id)
        for name, assignments in created.items():
            await self.create(name, assignments)
        await self.cluster.settle()
        try:
            for step in history:
                with suppress(ControllerError, StoreError, Crash):
                    await asyncio.wait_for(getattr(self, step[0])(*step[1:]), 20)
                await self.settle()
            await self.come_to_rest()
            self.check()
        finally:
            for each in self.cluster.brokers.values():
                await each.stop()

    async def settle(self) -> None:
        await self.cluster.settle()
        for broker_id in sorted(self.dying):
            self.dying.discard(broker_id)
            if broker_id in self.cluster.brokers:
                await self.cluster.kill(broker_id)

    async def come_to_rest(self) -> None:
        for broker_id in BROKERS:
            await self.start(broker_id)
        for _ in range(6):
            for each in self.partitions():
                with suppress(ControllerError):
                    await self.grow(each)
            await self.cluster.settle()

    def partitions(self) -> list[TopicPartition]:
        dump = self.cluster.ensemble.dump()
        topics = [path for path in dump if path.startswith(f"{TOPICS}/") and path.count("/") == 3]
        return [TopicPartition(path.split("/")[3], index) for path in topics for index in decode_topic(path, dump[path].data).partitions]

    def check(self) -> None:
        dump = self.cluster.ensemble.dump()
        context = self.cluster.controller.controller.context
        assert not [path for path in dump if path.startswith(f"{DELETE_TOPICS}/")]
        assert REASSIGN_PARTITIONS not in dump
        assert PREFERRED_REPLICA_ELECTION not in dump
        hosted: dict[int, set[TopicPartition]] = {each: set() for each in BROKERS}
        for each in self.partitions():
            assignment, state = self.cluster.assignment(each), self.cluster.state(each)
            assert not assignment.is_reassigning, (each, assignment, state)
            assert state.leader in state.isr, (each, state)
            assert set(state.isr) <= set(assignment.replicas), (each, assignment, state)
            assert context.assignment(each) == assignment
            assert context.leaderships[each] == Leadership(state, dump[partition_state_path(each)].version)
            for peer in (self.cluster.peers[broker_id] for broker_id in BROKERS):
                assert peer.cluster.leader_of(*each) == (state.leader, state.leader_epoch), each
            for broker_id in assignment.replicas:
                hosted[broker_id].add(each)
                assert self.cluster.peers[broker_id].replicas[each] == (state.leader, state.leader_epoch), (each, broker_id)
        assert {each.topic for each in context.partitions} == {each.topic for each in self.partitions()}
        for broker_id in BROKERS:
            strays = {each for each in self.cluster.peers[broker_id].replicas if each.topic in context.assignments} - hosted[broker_id]
            assert not strays, f"broker {broker_id} still has {strays}"

    # Steps

    async def kill(self, broker_id: int) -> None:
        if broker_id in self.cluster.brokers and len(self.cluster.brokers) > 1:
            await self.cluster.kill(broker_id)

    async def start(self, broker_id: int) -> None:
        if broker_id not in self.cluster.brokers:
            await self.cluster.start(broker_id)

    async def leave(self, broker_id: int) -> None:
        if broker_id in self.cluster.brokers and len(self.cluster.brokers) > 1:
            epoch = self.cluster.brokers[broker_id].controller.broker_epoch
            await self.cluster.controller.controller.controlled_shutdown(broker_id, epoch)
            await self.cluster.settle()
            await self.cluster.brokers.pop(broker_id).stop()

    async def expire(self, broker_id: int) -> None:
        if broker_id in self.cluster.brokers:
            self.cluster.ensemble.expire(self.cluster.brokers[broker_id].store.session_id)

    async def crash(self, writes: int) -> None:
        """The controller dies after some more writes."""
        if len(self.cluster.brokers) > 1:
            active = self.cluster.controller
            active.store.writes_left = writes
            self.dying.add(active.broker_id)

    async def depose(self) -> None:
        any_broker = next(iter(self.cluster.brokers.values()))
        await any_broker.store.delete("/controller")

    async def create(self, name: str, assignments: list[tuple[int, ...]]) -> None:
        if topic_path(name) not in self.cluster.ensemble.dump():
            wanted = {index: assignments[index][: min(map(len, assignments))] for index in range(len(assignments))}
            await self.cluster.controller.topics.create_topics([NewTopic(name, assignments=wanted)], timeout_ms=0)

    async def delete(self, name: str) -> None:
        await self.cluster.controller.topics.delete_topics([name], timeout_ms=0)

    async def move(self, targets: dict[TopicPartition, tuple[int, ...] | None]) -> None:
        await self.cluster.controller.controller.alter_reassignments(targets)

    async def order(self, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
        await self.cluster.controller.store.create(REASSIGN_PARTITIONS, encode_reassignments(targets))

    async def prefer(self, one: TopicPartition | None) -> None:
        if one is None:
            await self.cluster.controller.controller.elect_leaders(None, unclean=False)
        else:
            await self.cluster.controller.store.create(PREFERRED_REPLICA_ELECTION, encode_partitions([one]))

    async def rebalance(self) -> None:
        await self.cluster.controller.controller.rebalance_leaders()

    async def grow(self, each: TopicPartition) -> None:
        """All replicas that live have caught up."""
        await self._propose(each, lambda state, alive: (*state.isr, *(broker_id for broker_id in alive if broker_id not in state.isr)))

    async def shrink(self, each: TopicPartition) -> None:
        """Only the leader is in sync."""
        await self._propose(each, lambda state, _: (state.leader,))

    async def _propose(self, each: TopicPartition, isr_of: Callable[[PartitionState, list[int]], tuple[int, ...]]) -> None:
        path = partition_state_path(each)
        if path not in self.cluster.ensemble.dump():
            return
        state: PartitionState = self.cluster.state(each)
        if state.leader not in self.cluster.brokers:
            return
        alive = [broker_id for broker_id in self.cluster.assignment(each).replicas if broker_id in self.cluster.brokers]
        change = IsrChange(state.leader_epoch, isr_of(state, alive), self.cluster.ensemble.dump()[path].version)
        epoch = self.cluster.brokers[state.leader].controller.broker_epoch
        await self.cluster.controller.controller.alter_isr(state.leader, epoch, {each: change})


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CREATED, HISTORY)
@example({"a": [(0, 1)]}, [("move", {TopicPartition("a", 0): (2, 3)}), ("crash", 1), ("grow", TopicPartition("a", 0))])
def test_what_is_quiet_is_in_order(created: dict[str, list[tuple[int, ...]]], history: list[Step]) -> None:
    asyncio.run(Chronicle().play(created, history))
