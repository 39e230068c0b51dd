"""Metadata and DescribeTopicPartitions of very many topics and partitions: some in a step, and only what a page needs."""

from ottla.broker.handlers.topics import describe_topic_partitions, metadata
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.config.broker import BrokerConfig
from ottla.pauses import SORTED_AT_ONCE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.pauses import steps_of
from tests.support.replicas import brokers
from tests.support.replicas import metadata as topic_state


def a_context(topics: dict[str, int], api_key: ApiKey, version: int) -> RequestContext:
    """Of a broker that knows topics with so many partitions."""
    bench = HandlerBench()
    bench.services.config = BrokerConfig({})
    states = [
        topic_state(name, number.to_bytes(16, "big"), **{f"p{index}": 0 for index in range(count)})
        for number, (name, count) in enumerate(topics.items(), 1)
    ]
    bench.replicas.cluster.update(UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0), topic_states=states))
    return RequestContext(api_key, version, 0, None, bench.connection, bench.services, lambda _, __: CLOSE)


@on_a_loop
async def test_the_partitions_of_one_topic_are_described_some_in_a_step() -> None:
    count = 100
    context = a_context({"wide": count}, ApiKey.METADATA, 12)
    for topics in (None, [MetadataRequestTopic(name="wide")]):
        steps, response = steps_of(metadata.handle_metadata(MetadataRequest(topics=topics), context))
        assert steps >= count
        (topic,) = [each for each in response.topics if each.name == "wide"]
        assert [each.partition_index for each in topic.partitions] == list(range(count))


def page(context: RequestContext, limit: int, topic: str = "", index: int = 0, *names: str) -> tuple[int, DescribeTopicPartitionsResponse]:
    cursor = DescribeTopicPartitionsRequestCursor(topic_name=topic, partition_index=index) if topic else None
    asked = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return steps_of(describe_topic_partitions.handle_describe_topic_partitions(asked, context))


def listed(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics]


@on_a_loop
async def test_a_page_of_many_topics_sorts_some_in_a_step() -> None:
    count = 3 * SORTED_AT_ONCE
    names = [f"topic-{number * 7919 % count:05}" for number in range(count)]
    context = a_context(dict.fromkeys(names, 1), ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    steps, response = page(context, 2, "topic-01500")
    assert 3 < steps < 20
    assert listed(response) == [("topic-01500", [0]), ("topic-01501", [0])]
    assert response.next_cursor is not None
    assert response.next_cursor.topic_name == "topic-01502"


@on_a_loop
async def test_a_page_of_a_wide_topic_describes_one_partition_in_a_step() -> None:
    context = a_context({"wide": 300}, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    steps, response = page(context, 100, "wide", 50)
    assert steps >= 100
    assert listed(response) == [("wide", list(range(50, 150)))]
    assert response.next_cursor is not None
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("wide", 150)


@on_a_loop
async def test_a_cursor_in_an_unknown_topic_does_not_shorten_the_next_one() -> None:
    context = a_context({"b": 3}, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    _, response = page(context, 10, "a", 2, "a", "b")
    assert listed(response) == [("a", []), ("b", [0, 1, 2])]


@on_a_loop
async def test_a_cursor_needs_a_partition_and_a_topic_that_is_asked_for() -> None:
    context = a_context({"a": 3, "b": 3}, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    for topic, index in (("a", -1), ("c", 0)):
        _, response = page(context, 10, topic, index, "a", "b")
        assert listed(response) == [("a", []), ("b", [])]
        assert {each.error_code for each in response.topics} == {ErrorCode.INVALID_REQUEST}
    _, response = page(context, 10, "a", -1)
    assert (listed(response), response.next_cursor) == ([], None)
