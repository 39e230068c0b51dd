"""CreateTopics, CreatePartitions and DeleteTopics of a client with a quota for partitions (KIP-599)."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.broker.cluster.auto_topics import AutoTopics
from ottla.broker.quotas.quota_bounds import Tags
from ottla.broker.quotas.sensors import Average, Rate
from ottla.broker.quotas.token_bucket import MutationQuota, TokenBucket
from ottla.controller.admin.partition_growth import NewPartitions
from ottla.controller.admin.topic_admin import CreatedTopic, NewTopic
from ottla.controller.errors import InvalidTopicName, ThrottlingQuotaExceeded, UnknownTopicOrPartition
from ottla.protocol.errors import ErrorCode
from tests.support.controlled_cluster import BrokerUnderTest, new_ensemble


class Client:
    """A client that may create or delete one partition per second, and ten at once."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.bucket = TokenBucket(Tags("alice", ""), 10, Rate(2, 30_000, 0), Average(2, 30_000, 0), 0)
        self.bucket.bound = 1

    def request(self, *, is_strict: bool = True) -> MutationQuota:
        return MutationQuota(self.bucket, lambda: self.now_ms, is_strict=is_strict)

    @property
    def tokens(self) -> float:
        return self.bucket.tokens(self.now_ms)


def run(scenario: Callable[[BrokerUnderTest, Client], Awaitable[None]]) -> None:
    async def play() -> None:
        broker = BrokerUnderTest(new_ensemble())
        await broker.start()
        try:
            await scenario(broker, Client())
        finally:
            await broker.stop()

    asyncio.run(play())


def test_topics_are_created_until_the_quota_is_exhausted() -> None:
    async def scenario(broker: BrokerUnderTest, client: Client) -> None:
        quota = client.request()
        topics = [NewTopic("a", 8, 1), NewTopic("b", 8, 1), NewTopic("c", 1, 1), NewTopic("bad name", 1, 1)]
        results = await broker.topics.create_topics(topics, take_mutations=quota.take)
        assert isinstance(results["a"], CreatedTopic)
        assert isinstance(results["b"], CreatedTopic)
        assert isinstance(results["c"], ThrottlingQuotaExceeded)
        assert isinstance(results["bad name"], InvalidTopicName)
        assert (client.tokens, quota.throttle_time_ms()) == (-6, 6000)
        await broker.settle()
        assert sorted(broker.receiver.cluster.topics) == ["a", "b"]
        client.now_ms = 6000
        again = await broker.topics.create_topics([NewTopic("c", 1, 1)], take_mutations=client.request().take)
        assert isinstance(again["c"], CreatedTopic)

    run(scenario)


def test_a_request_of_an_old_version_is_served_and_throttled() -> None:
    async def scenario(broker: BrokerUnderTest, client: Client) -> None:
        quota = client.request(is_strict=False)
        results = await broker.topics.create_topics(
            [NewTopic("a", 8, 1), NewTopic("b", 8, 1), NewTopic("c", 1, 1)], take_mutations=quota.take
        )
        assert all(isinstance(result, CreatedTopic) for result in results.values())
        assert (client.tokens, quota.throttle_time_ms()) == (-7, 7000)

    run(scenario)


def test_a_request_that_is_only_validated_takes_nothing() -> None:
    async def scenario(broker: BrokerUnderTest, client: Client) -> None:
        client.bucket.take(100, 0)
        created = await broker.topics.create_topics([NewTopic("a", 8, 1)], validate_only=True, take_mutations=client.request().take)
        assert isinstance(created["a"], CreatedTopic)
        await broker.topics.create_topics([NewTopic("a", 1, 1)])
        grown = await broker.growth.create_partitions([NewPartitions("a", 9)], validate_only=True, take_mutations=client.request().take)
        assert grown["a"] is None
        assert client.tokens == -90

    run(scenario)


def test_new_partitions_are_counted_and_existing_ones_are_not() -> None:
    async def scenario(broker: BrokerUnderTest, client: Client) -> None:
        await broker.topics.create_topics([NewTopic("a", 5, 1), NewTopic("b", 5, 1)])
        quota = client.request()
        wanted = [NewPartitions("a", 20), NewPartitions("b", 6), NewPartitions("none", 6)]
        results = await broker.growth.create_partitions(wanted, take_mutations=quota.take)
        assert results["a"] is None
        assert isinstance(results["b"], ThrottlingQuotaExceeded)
        assert isinstance(results["none"], UnknownTopicOrPartition)
        assert (client.tokens, quota.throttle_time_ms()) == (-5, 5000)

    run(scenario)


def test_deleted_partitions_are_counted() -> None:
    async def scenario(broker: BrokerUnderTest, client: Client) -> None:
        await broker.topics.create_topics([NewTopic("a", 15, 1), NewTopic("b", 1, 1)])
        await broker.settle()
        quota = client.request()
        results = await broker.topics.delete_topics(["a", "b", "none"], take_mutations=quota.take)
        assert results["a"] is None
        assert isinstance(results["b"], ThrottlingQuotaExceeded)
        assert isinstance(results["none"], UnknownTopicOrPartition)
        assert (client.tokens, quota.throttle_time_ms()) == (-5, 5000)
        await broker.settle()
        assert sorted(broker.receiver.cluster.topics) == ["b"]

    run(scenario)


def test_topics_that_are_created_on_demand_are_counted() -> None:
    async def scenario(broker: BrokerUnderTest, client: Client) -> None:
        client.bucket.take(10, 0)
        codes = await AutoTopics(broker.config, broker.topics).create(["a", "b"], client.request(is_strict=False).take)
        assert codes == dict.fromkeys(("a", "b"), ErrorCode.LEADER_NOT_AVAILABLE)
        assert client.tokens == -2

    run(scenario)
