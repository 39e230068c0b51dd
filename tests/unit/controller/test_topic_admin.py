"""CreateTopics and DeleteTopics: what is refused, in Apache Kafka's own sentences, and what comes of what is not."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from unittest.mock import patch

import pytest

from ottla.controller.admin.topic_admin import CreatedTopic, NewTopic
from ottla.controller.errors import (
    AdminTimeout,
    ControllerError,
    InvalidAdminRequest,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicConfig,
    InvalidTopicName,
    NotController,
    RequestTooLong,
    StoreError,
    TopicDeletionDisabled,
    TopicExists,
    TopicMarkedForDeletion,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.controller.store.metadata_store import Create, Request, Result
from ottla.controller.znodes.layout import decode_topic, topic_path
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble


def run(scenario: Callable[[BrokerUnderTest], Awaitable[None]], **properties: str) -> None:
    async def play() -> None:
        broker = BrokerUnderTest(new_ensemble(), properties={name.replace("_", "."): value for name, value in properties.items()})
        await broker.start()
        try:
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(play())


REFUSED: list[tuple[NewTopic, type[ControllerError], str]] = [
    (NewTopic("", 1, 1), InvalidTopicName, "Topic name is invalid: the empty string is not allowed"),
    (NewTopic("..", 1, 1), InvalidTopicName, "Topic name is invalid: '..' is not allowed"),
    (
        NewTopic("x" * 250, 1, 1),
        InvalidTopicName,
        f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
    ),
    (
        NewTopic("bad name", 1, 1),
        InvalidTopicName,
        "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    (NewTopic("there", 1, 1), TopicExists, "Topic 'there' already exists."),
    (NewTopic("a_b", 1, 1), InvalidTopicName, "Topic 'a_b' collides with existing topics: a.b"),
    (NewTopic("t", 0, 1), InvalidPartitions, "Number of partitions must be larger than 0."),
    (NewTopic("t", 1, 0), InvalidReplicationFactor, "Replication factor must be larger than 0."),
    (NewTopic("t", 1, 5), InvalidReplicationFactor, "Replication factor: 5 larger than available brokers: 1."),
    (
        NewTopic("t", assignments={0: [-1, -1], 5: [1, 0], 1: [1, 1]}),  # in the order of a real 3.9.1
        InvalidReplicaAssignment,
        "Duplicate replica assignment found: HashMap(0 -> ArrayBuffer(-1, -1), 1 -> ArrayBuffer(1, 1), 5 -> ArrayBuffer(1, 0))",
    ),
    (NewTopic("t", assignments={0: [0], 1: [0, 1]}), InvalidReplicaAssignment, "All partitions should have the same number of replicas"),
    (NewTopic("t", assignments={1: [0]}), InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence"),
    (NewTopic("t", assignments={0: []}), InvalidReplicaAssignment, "A partition needs at least one replica"),
    (
        NewTopic("t", 1, -1, {0: [0]}),
        InvalidAdminRequest,
        "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time.",
    ),
    (NewTopic("t", 1, 1, configs={"nope": "1"}), InvalidTopicConfig, "Unknown topic config name: nope"),
    (
        NewTopic("t", 1, 1, configs={"retention.ms": "x"}),
        InvalidTopicConfig,
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    (NewTopic("t", 1, 1, configs={"a": None, "b": None}), InvalidTopicConfig, "Null value not supported for topic configs: a,b"),
    (
        NewTopic("t", 2**31 - 1, 1),
        InvalidPartitions,
        "Excessively large number of partitions per request: 2147483647, at most 10000 can be created at once.",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("topic", "error", "message"), REFUSED, ids=[message[:60] for _, _, message in REFUSED])
def test_a_topic_that_cannot_be_is_refused_in_kafkas_words(topic: NewTopic, error: type[ControllerError], message: str) -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        await broker.topics.create_topics([NewTopic("a.b", 1, 1), NewTopic("there", 1, 1)])
        before = broker.ensemble.dump().keys()
        result = (await broker.topics.create_topics([topic]))[topic.name]
        assert type(result) is error
        assert str(result) == message
        assert broker.ensemble.dump().keys() == before

    run(scenario)


def test_one_bad_topic_does_not_stop_the_others() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        results = await broker.topics.create_topics([NewTopic("good"), NewTopic("bad name"), NewTopic("better", 3, 1)])
        good, bad, better = results["good"], results["bad name"], results["better"]
        assert isinstance(bad, InvalidTopicName)
        assert isinstance(good, CreatedTopic)
        assert isinstance(better, CreatedTopic)
        assert (good.num_partitions, good.replication_factor, better.num_partitions) == (4, 1, 3)
        assert broker.receiver.cluster.topic_id("good") == good.topic_id != better.topic_id
        assert {partition for partition in broker.receiver.replicas if partition.topic == "better"} == {
            TopicPartition("better", index) for index in range(3)
        }

    run(scenario, num_partitions="4")


def test_a_topic_that_is_too_long_for_zookeeper_does_not_stop_the_others() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        pipeline = broker.store.pipeline

        async def refusing(requests: Sequence[Request]) -> list[Result | StoreError]:
            are_long = [isinstance(each, Create) and each.path == topic_path("long") for each in requests]
            outcomes = iter(await pipeline([each for each, is_long in zip(requests, are_long, strict=True) if not is_long]))
            return [RequestTooLong("/it", "is too long") if is_long else next(outcomes) for is_long in are_long]

        with patch.object(broker.store, "pipeline", refusing):
            results = await broker.topics.create_topics([NewTopic("long", assignments={0: [0]}), NewTopic("good", 1, 1)])
        assert isinstance(results["good"], CreatedTopic)
        assert type(results["long"]) is InvalidAdminRequest
        assert str(results["long"]) == "/it: is too long"

    run(scenario)


def test_topics_of_one_request_do_not_collide_with_each_other() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        names = ("with.dot", "other", "with_dot", "with-dash")
        results = await broker.topics.create_topics([NewTopic(name) for name in names])
        assert str(results.pop("with_dot")) == "Topic 'with_dot' collides with existing topics: with.dot"
        assert all(isinstance(result, CreatedTopic) for result in results.values())
        assert set(broker.receiver.cluster.topics) == results.keys()
        checked = await broker.topics.create_topics([NewTopic("a.b"), NewTopic("a_b")], validate_only=True)
        assert all(isinstance(result, CreatedTopic) for result in checked.values())

    run(scenario)


def test_validation_alone_changes_nothing() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        before = broker.ensemble.dump()
        result = (await broker.topics.create_topics([NewTopic("t", 2, 1, configs={"retention.ms": "7"})], validate_only=True))["t"]
        assert isinstance(result, CreatedTopic)
        assert result.topic_id == bytes(16)
        assert next(entry.value for entry in result.config.describe() if entry.name == "retention.ms") == "7"
        assert broker.ensemble.dump() == before

    run(scenario)


def test_a_topic_whose_brokers_are_not_there_is_made_but_does_not_come_up_in_time() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        assert isinstance((await broker.topics.create_topics([NewTopic("t", assignments={0: [7]})], timeout_ms=10))["t"], AdminTimeout)
        data = broker.ensemble.dump()["/brokers/topics/t"].data
        assert decode_topic("", data).partitions[0].replicas == (7,)
        assert "/brokers/topics/t/partitions" not in broker.ensemble.dump()
        assert isinstance((await broker.topics.create_topics([NewTopic("u")], timeout_ms=0))["u"], AdminTimeout)
        await broker.settle()
        assert "u" in broker.receiver.cluster.topics

    run(scenario)


def test_a_topic_may_be_deleted_and_made_again_with_a_new_id() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        ids = set()
        for _ in range(3):
            result = (await broker.topics.create_topics([NewTopic("t", 2, 1)]))["t"]
            assert isinstance(result, CreatedTopic)
            ids.add(result.topic_id)
            assert await broker.topics.delete_topics(["t", "t"]) == {"t": None}
            await broker.settle()
            assert not broker.receiver.replicas
            assert "/brokers/topics/t" not in broker.ensemble.dump()
        assert len(ids) == 3

    run(scenario)


def test_a_topic_that_is_deleted_by_its_id_is_not_its_successor() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        async def make() -> bytes:
            made = (await broker.topics.create_topics([NewTopic("t", 1, 1)]))["t"]
            assert isinstance(made, CreatedTopic)
            return made.topic_id

        async def order_late(topics: Mapping[str, bytes]) -> list[str]:
            """Somebody else deletes the topic and makes another of that name, just before."""
            await broker.topics.delete_topics(["t"])
            await broker.settle()
            successors.append(await make())
            return await broker.controller.order_deletions(topics)

        successors: list[bytes] = []
        former = await make()
        results = await broker.topics.delete_topics(["t"], ids={"t": former}, order_by_id=order_late)
        assert isinstance(results["t"], UnknownTopicId)
        await broker.settle()
        assert broker.controller.context.topic_ids == {"t": successors[0]}
        ids = {"t": successors[0]}
        assert await broker.topics.delete_topics(["t"], ids=ids, order_by_id=broker.controller.order_deletions) == {"t": None}
        await broker.settle()
        assert "/brokers/topics/t" not in broker.ensemble.dump()

    run(scenario)


def test_a_deletion_by_id_is_refused_by_who_is_not_controller_any_more() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        made = (await broker.topics.create_topics([NewTopic("t", 1, 1)]))["t"]
        assert isinstance(made, CreatedTopic)
        await broker.store.set("/controller_epoch", b"7")
        ids = {"t": made.topic_id}
        results = await broker.topics.delete_topics(["t"], ids=ids, order_by_id=broker.controller.order_deletions)
        assert isinstance(results["t"], NotController)
        assert "/admin/delete_topics/t" not in broker.ensemble.dump()

    run(scenario)


def test_what_is_not_there_cannot_be_deleted() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        results = await broker.topics.delete_topics(["nope", "bad name", "../x"])
        assert all(isinstance(each, UnknownTopicOrPartition) for each in results.values())
        assert str(results["nope"]) == "Topic `nope` to delete does not exist"

    run(scenario)


def test_deletion_can_be_forbidden_and_orders_are_then_dropped() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        await broker.topics.create_topics([NewTopic("t", 1, 1)])
        assert isinstance((await broker.topics.delete_topics(["t"]))["t"], TopicDeletionDisabled)
        await broker.store.create("/admin/delete_topics/t")
        await broker.settle()
        assert "/admin/delete_topics/t" not in broker.ensemble.dump()
        assert "t" in broker.receiver.cluster.topics

    run(scenario, delete_topic_enable="false")


def test_a_topic_that_is_still_being_deleted_blocks_its_name() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        await broker.topics.create_topics([NewTopic("t", 1, 1)])
        broker.receiver.error_of = lambda _: ErrorCode.UNKNOWN_SERVER_ERROR
        assert await broker.topics.delete_topics(["t"]) == {"t": None}
        await broker.settle()
        result = (await broker.topics.create_topics([NewTopic("t", 1, 1)]))["t"]
        assert isinstance(result, TopicMarkedForDeletion)
        assert str(result) == "Topic 't' is marked for deletion."
        assert "/brokers/topics/t" in broker.ensemble.dump()

    run(scenario)


def test_a_name_that_is_soon_free_is_waited_for() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        first = (await broker.topics.create_topics([NewTopic("t", 1, 1)]))["t"]
        assert await broker.topics.delete_topics(["t"]) == {"t": None}
        assert "/admin/delete_topics/t" in broker.ensemble.dump()
        second = (await broker.topics.create_topics([NewTopic("t", 2, 1)], is_soon_free=broker.controller.context.is_soon_deleted))["t"]
        assert isinstance(first, CreatedTopic)
        assert isinstance(second, CreatedTopic)
        assert second.num_partitions == 2
        assert second.topic_id != first.topic_id

    run(scenario)


def test_a_name_whose_deletion_is_suspended_is_refused_at_once() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        await broker.topics.create_topics([NewTopic("t", 1, 1)])
        broker.receiver.error_of = lambda _: ErrorCode.UNKNOWN_SERVER_ERROR
        assert await broker.topics.delete_topics(["t"]) == {"t": None}
        result = await broker.topics.create_topics(
            [NewTopic("t", 1, 1)], timeout_ms=600_000, is_soon_free=broker.controller.context.is_soon_deleted
        )
        assert isinstance(result["t"], TopicMarkedForDeletion)

    run(scenario)


def test_two_requests_for_one_name_make_one_topic() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        results = await asyncio.gather(*(broker.topics.create_topics([NewTopic("t", 1, 1)]) for _ in range(2)))
        assert sorted(type(result["t"]) is CreatedTopic for result in results) == [False, True]

    run(scenario)


def test_a_hundred_partitions_cost_few_requests() -> None:
    async def scenario(broker: BrokerUnderTest) -> None:
        before = len(broker.receiver.requests)
        await broker.topics.create_topics([NewTopic("t", 100, 1)])
        assert len(broker.receiver.requests) - before == 2

    run(scenario)
