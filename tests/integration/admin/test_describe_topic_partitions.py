"""DescribeTopicPartitions page by page."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.support.admin_requests import a_topic, create
from tests.support.in_process_broker import a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    """With topics `a` of three partitions and `b` of two."""
    directory: Path = tmp_path_factory.mktemp("broker")
    with a_broker_in_process(directory, broker_id=0) as broker, a_wire_client(broker.port) as connected:
        create(connected, a_topic("b", 2), a_topic("a", 3))
        yield connected


def listed(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics]


def test_without_names_all_topics_come_in_order(client: WireClient) -> None:
    answer = client.ask(DescribeTopicPartitionsRequest(), 0)
    assert listed(answer) == [("a", [0, 1, 2]), ("b", [0, 1])]
    assert answer.next_cursor is None


def test_a_full_answer_says_where_the_next_goes_on(client: WireClient) -> None:
    seen = []
    cursor = None
    for _ in range(3):
        answer = client.ask(DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor), 0)
        seen += listed(answer)
        if answer.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    assert seen == [("a", [0, 1]), ("a", [2]), ("b", [0]), ("b", [1])]


def test_a_partition_has_its_leader_and_replicas(client: WireClient) -> None:
    answer = client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="b")]), 0)
    partition = answer.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes, partition.isr_nodes) == (0, 0, [0], [0])


def test_a_topic_that_cannot_be_described_is_an_error_of_its_own(client: WireClient) -> None:
    asked = [TopicRequest(name=name) for name in ("a", "no pe", "nope")]
    answer = client.ask(DescribeTopicPartitionsRequest(topics=asked), 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("no pe", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_it_is_listed_in_a_cluster_of_its_own(client: WireClient) -> None:
    answer = client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    assert 75 in {line.api_key for line in answer.api_keys}
