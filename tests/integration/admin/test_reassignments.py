"""What one broker says to AlterPartitionReassignments, in the words of Apache Kafka 3.9.1."""

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.support.admin_requests import a_topic, create
from tests.support.in_process_broker import InProcessBroker
from tests.support.wire_client import WireClient, a_wire_client


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        create(connected, a_topic("t", 2))
        yield connected


def move(client: WireClient, topic: str, replicas: list[int] | None) -> tuple[str, str | None]:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[ReassignableTopic(name=topic, partitions=[partition])])
    response = client.ask(request, 0)
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")
    (answered,) = response.responses
    assert answered.name == topic
    (result,) = answered.partitions
    assert result.partition_index == 0
    return ErrorCode.of(result.error_code).name, result.error_message


@pytest.mark.parametrize(
    ("topic", "replicas", "answer"),
    [
        ("t", [0], ("NONE", None)),
        ("t", None, ("NO_REASSIGNMENT_IN_PROGRESS", "No partition reassignment is in progress.")),
        ("nope", None, ("NO_REASSIGNMENT_IN_PROGRESS", "No partition reassignment is in progress.")),
        ("nope", [0], ("UNKNOWN_TOPIC_OR_PARTITION", "The partition does not exist.")),
        ("t", [], ("INVALID_REPLICA_ASSIGNMENT", "Empty replica list specified in partition reassignment.")),
        (
            "t",
            [9],
            (
                "INVALID_REPLICA_ASSIGNMENT",
                "Replica assignment has brokers that are not alive. Replica list: ArrayBuffer(9), live broker list: Set(0)",
            ),
        ),
    ],
)
def test_what_is_asked_for_is_begun_or_refused(
    client: WireClient, topic: str, replicas: list[int] | None, answer: tuple[str, str | None]
) -> None:
    assert move(client, topic, replicas) == answer
    assert client.ask(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None), 0).topics == []
