"""Thousands of partitions fail over in one pass: as many round trips and requests as for one, with more in each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import StoreError
from ottla.controller.state.core import LARGE
from ottla.controller.store.metadata_store import Create, Request, Result
from ottla.controller.znodes.layout import (
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    decode_partition_state,
    encode_topic,
    partition_state_path,
    topic_path,
)
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, run

TOPICS = 20
PARTITIONS_PER_TOPIC = 100
ALL = {TopicPartition(f"t{topic}", index) for topic in range(TOPICS) for index in range(PARTITIONS_PER_TOPIC)}


class Counted:
    """What a broker asks of its store from now on."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self.round_trips = 0
        self._pipeline = broker.store.pipeline
        broker.store.pipeline = self._count  # type: ignore[method-assign]  # a counter in between

    async def _count(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        self.round_trips += 1
        return await self._pipeline(requests)


async def make(cluster: Cluster, partitions: int) -> None:
    """Topics on brokers 0, 1 and 2, each of which leads a third."""
    assignments = {index: ReplicaAssignment(tuple((index + at) % 3 for at in range(3))) for index in range(partitions)}
    requests: list[Request] = []
    for topic in range(TOPICS if partitions > 1 else 1):
        body = encode_topic(TopicAssignment(topic.to_bytes(16, "big"), assignments))
        requests += [Create(config_path("topics", f"t{topic}")), Create(topic_path(f"t{topic}"), body)]
    await cluster.brokers[0].store.pipeline(requests)
    await cluster.settle()


async def fail_over(cluster: Cluster) -> tuple[int, dict[int, list[LeaderAndIsrRequest]], int]:
    """The controller dies, which leads a third. Round trips of the next one; LeaderAndIsr by broker; UpdateMetadata to each at most."""
    for peer in cluster.peers.values():
        peer.requests.clear()
    counted = [Counted(cluster.brokers[broker_id]) for broker_id in (1, 2)]
    await cluster.kill(0)
    told = {each: [one for one in cluster.peers[each].requests if isinstance(one, LeaderAndIsrRequest)] for each in (1, 2)}
    news = max(sum(isinstance(one, UpdateMetadataRequest) for one in cluster.peers[each].requests) for each in (1, 2))
    return max(each.round_trips for each in counted), told, news


@pytest.mark.slow
def test_two_thousand_partitions_fail_over_in_as_many_steps_as_one() -> None:
    steps = []

    async def scenario(cluster: Cluster, partitions: int) -> None:
        await make(cluster, partitions)
        steps.append(await fail_over(cluster))
        tree = cluster.ensemble.dump()
        for partition in ALL if partitions > 1 else [TopicPartition("t0", 0)]:
            path = partition_state_path(partition)
            state = decode_partition_state(path, tree[path].data)
            assert state.leader == (1 if partition.partition % 3 in (0, 1) else 2)
            assert 0 not in state.isr

    run(lambda cluster: scenario(cluster, 1))
    run(lambda cluster: scenario(cluster, PARTITIONS_PER_TOPIC))
    (round_trips_of_one, told_of_one, news_of_one), (round_trips, told, news) = steps
    assert round_trips <= round_trips_of_one + 2
    assert news <= news_of_one + 1
    for broker_id in (1, 2):
        assert len(told[broker_id]) <= len(told_of_one[broker_id]) + 1
        named = {
            TopicPartition(topic.topic_name, state.partition_index)
            for request in told[broker_id]
            for topic in request.topic_states
            for state in topic.partition_states
        }
        assert named == ALL


def test_very_many_new_partitions_are_taken_in_where_the_collector_may_be_told() -> None:
    entered: list[int] = []

    async def scenario(cluster: Cluster) -> None:
        core = cluster.controller.controller._core

        @contextmanager
        def while_large() -> Iterator[None]:
            before = len(list(core.context.partitions))
            yield
            entered.append(len(core.context.leaderships) - before)

        core.while_large = while_large
        await make(cluster, 1)
        assert entered == []
        await cluster.brokers[0].topics.create_topics([NewTopic("large", LARGE, 1)], timeout_ms=0)
        await cluster.settle()
        assert entered == [LARGE]

    run(scenario)
