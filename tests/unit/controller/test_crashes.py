"""A broker that dies after any write of any administration leaves a tree from which its next life goes on."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.admin.partition_growth import NewPartitions
from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import ControllerError, SessionExpired
from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.znodes.layout import decode_partition_state, decode_topic
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, Crash, new_ensemble

TOPICS = ("a", "b", "c")

ADMINISTRATION = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(TOPICS), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.sampled_from(TOPICS), st.just(0)),
        st.tuples(st.just("grow"), st.sampled_from(TOPICS), st.integers(1, 6)),
        st.tuples(st.just("configure"), st.sampled_from(TOPICS), st.integers(1, 9)),
    ),
    min_size=1,
    max_size=5,
)


async def administer(broker: BrokerUnderTest, what: str, topic: str, number: int) -> None:
    if what == "create":
        await broker.topics.create_topics([NewTopic(topic, number, 1)], timeout_ms=50)
    elif what == "delete":
        await broker.topics.delete_topics([topic], timeout_ms=50)
    elif what == "grow":
        await broker.growth.create_partitions([NewPartitions(topic, number)], timeout_ms=50)
    else:
        await ConfigAdmin(broker.store, 0, broker.config).set_topic_configs(topic, {"retention.ms": str(number)})


async def one_life(ensemble: MemoryEnsemble, script: list[tuple[str, str, int]], writes: int | None, seed: int) -> None:
    """Start, administer, and die after so many writes, wherever that is; or finish everything and stop in order."""
    broker = BrokerUnderTest(ensemble, seed=seed)
    broker.store.writes_left = writes
    with suppress(Crash, SessionExpired):
        await broker.start()
        for step in script:
            with suppress(ControllerError):
                await administer(broker, *step)
        await broker.settle()
    if writes is None:
        check(ensemble, broker)
        await broker.stop()
    else:
        await broker.controller.shutdown()
        if broker.store.session_id:
            ensemble.expire(broker.store.session_id)


def check(ensemble: MemoryEnsemble, broker: BrokerUnderTest) -> None:
    """Every topic is whole, has an id, leaders and a config; the broker hosts exactly these; nothing else is left."""
    tree = ensemble.dump()
    assert not [path for path in tree if path.startswith("/admin/delete_topics/")]
    topics = {
        path.split("/")[3]: decode_topic(path, node.data)
        for path, node in tree.items()
        if path.count("/") == 3 and "/topics/" in path and path.startswith("/brokers")
    }
    hosted = set()
    for topic, assignment in topics.items():
        assert assignment.topic_id not in (None, bytes(16))
        assert sorted(assignment.partitions) == list(range(len(assignment.partitions)))
        assert f"/config/topics/{topic}" in tree
        for index in assignment.partitions:
            path = f"/brokers/topics/{topic}/partitions/{index}/state"
            state = decode_partition_state(path, tree[path].data)
            assert (state.leader, state.isr) == (0, (0,))
            hosted.add(TopicPartition(topic, index))
            assert broker.receiver.cluster.leader_of(topic, index) == (0, state.leader_epoch)
        assert broker.receiver.cluster.topic_id(topic) == assignment.topic_id
    assert broker.receiver.replicas.keys() == hosted
    assert set(broker.receiver.cluster.topics) == set(topics)
    states = {path for path in tree if path.endswith("/state")}
    assert len(states) == len(hosted)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(ADMINISTRATION, st.integers(0, 60)), min_size=1, max_size=3), ADMINISTRATION)
def test_whatever_was_interrupted_is_finished_by_the_next_life(
    lives: list[tuple[list[tuple[str, str, int]], int]], last: list[tuple[str, str, int]]
) -> None:
    async def play() -> None:
        ensemble = new_ensemble()
        for number, (script, writes) in enumerate(lives):
            await one_life(ensemble, script, writes, seed=10_000 * (number + 1))
        await one_life(ensemble, last, None, seed=9_000_000)

    asyncio.run(play())
