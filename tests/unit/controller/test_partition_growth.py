"""CreatePartitions: what is refused, in Apache Kafka's own sentences, and where new partitions go."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from unittest.mock import patch

import pytest

from ottla.controller.admin.partition_growth import NewPartitions, PartitionGrowth
from ottla.controller.admin.stored_topics import stored_count
from ottla.controller.admin.topic_admin import NewTopic
from ottla.controller.errors import (
    ControllerError,
    InvalidAdminRequest,
    InvalidPartitions,
    InvalidReplicaAssignment,
    NoNode,
    ReassignmentInProgress,
    RequestTooLong,
    StoreError,
    UnknownTopicOrPartition,
)
from ottla.controller.store.metadata_store import ANY_VERSION, Request, Result, Stat, Watch
from ottla.controller.znodes.layout import ReplicaAssignment, TopicAssignment, decode_topic, encode_topic, partitions_path, topic_path
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble


def run(scenario: Callable[[BrokerUnderTest], Awaitable[None]]) -> None:
    async def play() -> None:
        broker = BrokerUnderTest(new_ensemble())
        await broker.start()
        await broker.topics.create_topics([NewTopic("cfg", 2, 1)])
        try:
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(play())


REFUSED: list[tuple[NewPartitions, type[ControllerError], str]] = [
    (NewPartitions("cfg", 2), InvalidPartitions, "Topic already has 2 partitions."),
    (NewPartitions("cfg", 1), InvalidPartitions, "Topic currently has 2 partitions, which is higher than the requested 1."),
    (NewPartitions("none", 3), UnknownTopicOrPartition, "The topic 'none' does not exist."),
    (NewPartitions("bad name", 3), UnknownTopicOrPartition, "The topic 'bad name' does not exist."),
    (NewPartitions("cfg", 4, [[0], [7]]), InvalidReplicaAssignment, "Unknown broker(s) in replica assignment: 7."),
    (
        NewPartitions("cfg", 4, [[0]]),
        InvalidReplicaAssignment,
        "Increasing the number of partitions by 2 but 1 assignments provided.",
    ),
    (NewPartitions("cfg", 3, [[]]), InvalidReplicaAssignment, "Cannot have replication factor of 0 for partition id 2."),
    (
        NewPartitions("cfg", 4, [[0], [0, 0]]),
        InvalidReplicaAssignment,
        "Duplicate brokers not allowed in replica assignment: 0, 0 for partition id 3.",
    ),
    (
        NewPartitions("cfg", 10_003, [[0]] * 10_001),
        InvalidPartitions,
        "Excessively large number of partitions per request: 10001, at most 10000 can be created at once.",
    ),
    (
        NewPartitions("cfg", 2**31 - 1),
        InvalidPartitions,
        "Excessively large number of partitions per request: 2147483645, at most 10000 can be created at once.",
    ),
]


@pytest.mark.parametrize(("wanted", "error", "message"), REFUSED, ids=[message[:60] for _, _, message in REFUSED])
def test_growth_that_cannot_be_is_refused_in_kafkas_words(wanted: NewPartitions, error: type[ControllerError], message: str) -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        result = (await broker.growth.create_partitions([wanted]))[wanted.topic]
        assert type(result) is error
        assert str(result) == message
        assert len(broker.receiver.cluster.topics["cfg"].partitions) == 2

    run(scenario)


def test_a_topic_grows_and_keeps_its_id_and_its_old_partitions() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        before = decode_topic("", broker.ensemble.dump()["/brokers/topics/cfg"].data)
        assert await broker.growth.create_partitions([NewPartitions("cfg", 3)], validate_only=True) == {"cfg": None}
        assert len(broker.receiver.cluster.topics["cfg"].partitions) == 2
        assert await broker.growth.create_partitions([NewPartitions("cfg", 20)]) == {"cfg": None}
        after = decode_topic("", broker.ensemble.dump()["/brokers/topics/cfg"].data)
        assert after.topic_id == before.topic_id
        assert len(after.partitions) == 20
        assert broker.receiver.replicas[TopicPartition("cfg", 19)] == (0, 0)
        assert await broker.growth.create_partitions([NewPartitions("cfg", 21, [[0]])]) == {"cfg": None}

    run(scenario)


@pytest.mark.parametrize("validate_only", [True, False])
def test_an_internal_topic_does_not_grow(validate_only: bool) -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        await broker.topics.create_topics([NewTopic("__consumer_offsets", 2, 1)])
        wanted = NewPartitions("__consumer_offsets", 3)
        result = (await broker.growth.create_partitions([wanted], validate_only=validate_only))["__consumer_offsets"]
        assert isinstance(result, InvalidPartitions)
        assert str(result) == (
            "Topic '__consumer_offsets' is internal: groups and transactional ids do not use partitions that are added. With brokers of "
            "Apache Kafka in the cluster most of them would lose their stored state. Set ottla.internal.topics.can.grow=true on the "
            "controller to add partitions all the same."
        )
        assert len(broker.receiver.cluster.topics["__consumer_offsets"].partitions) == 2

    run(scenario)


def test_a_topic_whose_partitions_are_moving_does_not_grow() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        topic = decode_topic("", broker.ensemble.dump()["/brokers/topics/cfg"].data)
        moving = {**topic.partitions, 0: ReplicaAssignment((1, 0), (1,), (0,))}
        await broker.store.set("/brokers/topics/cfg", encode_topic(TopicAssignment(topic.topic_id, moving)))
        result = (await broker.growth.create_partitions([NewPartitions("cfg", 3)]))["cfg"]
        assert isinstance(result, ReassignmentInProgress)
        assert str(result) == "A partition reassignment is in progress for the topic 'cfg'."

    run(scenario)


def test_partitions_added_to_a_topic_that_is_being_deleted_are_taken_back() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        broker.receiver.error_of = lambda _: ErrorCode.UNKNOWN_SERVER_ERROR
        await broker.topics.delete_topics(["cfg"])
        await broker.growth.create_partitions([NewPartitions("cfg", 3)], timeout_ms=0)
        await broker.settle()
        assert len(decode_topic("", broker.ensemble.dump()["/brokers/topics/cfg"].data).partitions) == 2

    run(scenario)


def test_many_topics_that_are_not_there_take_few_round_trips() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        wanted = [NewPartitions(f"none-{at}", 3) for at in range(990)] + [NewPartitions("cfg", 4), NewPartitions("bad name", 3)]
        trips = 0
        pipeline = broker.store.pipeline

        async def counted(requests: Sequence[Request]) -> list[Result | StoreError]:
            nonlocal trips
            trips += 1
            return await pipeline(requests)

        with patch.object(broker.store, "pipeline", counted):
            results = await broker.growth.create_partitions(wanted, validate_only=True)
        assert list(results) == [each.topic for each in wanted]
        assert results.pop("cfg") is None
        assert {type(result) for result in results.values()} == {UnknownTopicOrPartition}
        assert trips <= 12

    run(scenario)


def test_a_topic_that_grows_meanwhile_is_read_again() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        path = topic_path("cfg")
        set_, others = broker.store.set, [3]

        async def set_later(path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
            while others:  # somebody else is quicker
                others.pop()
                existing = decode_topic(path, (await broker.store.get(path))[0])
                await set_(path, encode_topic(TopicAssignment(existing.topic_id, {**existing.partitions, 2: ReplicaAssignment((0,))})))
            return await set_(path, data, version)

        with patch.object(broker.store, "set", set_later):
            result = await broker.growth.create_partitions([NewPartitions("cfg", 3)])
        assert str(result["cfg"]) == "Topic already has 3 partitions."
        assert len(decode_topic(path, (await broker.store.get(path))[0]).partitions) == 3

    run(scenario)


def test_a_topic_that_is_deleted_meanwhile_is_not_there() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        async def refused(path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
            raise NoNode(path)

        async def gone(path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
            raise NoNode(path)

        with patch.object(broker.store, "set", refused), patch.object(broker.store, "get", gone):
            result = await broker.growth.create_partitions([NewPartitions("cfg", 3)])
        assert str(result["cfg"]) == "The topic 'cfg' does not exist."

    run(scenario)


def test_partitions_that_are_too_many_for_zookeeper_are_refused() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        async def refused(path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
            raise RequestTooLong(path, "is too long")

        with patch.object(broker.store, "set", refused):
            result = (await broker.growth.create_partitions([NewPartitions("cfg", 3)]))["cfg"]
        assert type(result) is InvalidAdminRequest
        assert str(result) == "/brokers/topics/cfg: is too long"

    run(scenario)


@pytest.mark.parametrize(
    ("damaged", "refused"),
    [
        (b"{", ControllerError),
        (b'{"partitions":{"0":["0"]},"version":3}', ControllerError),
        (b'{"partitions":{"0":[]},"version":3}', ControllerError),
        (b'{"partitions":{"1":[0]},"version":3}', ControllerError),
        (b'{"partitions":{},"version":3}', UnknownTopicOrPartition),
    ],
)
def test_a_topic_with_a_malformed_znode_keeps_no_other_from_growing(damaged: bytes, refused: type[ControllerError]) -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        await broker.topics.create_topics([NewTopic("edited", 2, 1)])
        await broker.store.set(topic_path("edited"), damaged)
        result = await broker.growth.create_partitions([NewPartitions("edited", 3), NewPartitions("cfg", 3)])
        assert type(result["edited"]) is refused
        assert result["cfg"] is None

    run(scenario)


def test_partitions_that_are_added_to_an_internal_topic_do_not_count_until_it_is_created_again() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        topic = "__consumer_offsets"
        await broker.topics.create_topics([NewTopic(topic, 2, 1)])
        assert await stored_count(broker.store, topic) == (2, False)
        growth = PartitionGrowth(broker.store, broker.receiver.cluster, broker.metadata_waits, lambda below: 0, [topic], may_grow=True)
        for total in (5, 6):
            assert await growth.create_partitions([NewPartitions(topic, total)]) == {topic: None}
            assert await stored_count(broker.store, topic) == (2, True)
            assert len(decode_topic(topic_path(topic), (await broker.store.get(topic_path(topic)))[0]).partitions) == total
        await broker.topics.delete_topics([topic])
        await broker.settle()
        assert await stored_count(broker.store, topic) == (0, False)
        await broker.topics.create_topics([NewTopic(topic, 4, 1)])
        assert await stored_count(broker.store, topic) == (4, False)

    run(scenario)


@pytest.mark.parametrize("data", [b"{", b"{}", b'{"coordinating":0}', b'{"coordinating":true}'])
def test_a_number_of_coordinating_partitions_that_cannot_be_read_is_reported(data: bytes) -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        await broker.store.set(partitions_path("cfg"), data)
        with pytest.raises(MalformedZNode, match="/brokers/topics/cfg/partitions"):
            await stored_count(broker.store, "cfg")

    run(scenario)
