"""Moves partitions and elects preferred leaders through the present controller of a test's cluster."""

from ottla.client.cluster import Cluster as Client
from ottla.client.errors import ClientError, check
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.messages.elect_leaders import TopicPartitions as ElectTopicPartitions
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster

SECONDS = 90.0


def move(cluster: Cluster, topic: str, targets: dict[int, list[int] | None]) -> None:
    """Begin; None gives a move up."""
    partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in targets.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=partitions)])

    def ask(client: Client) -> AlterPartitionReassignmentsResponse:
        def attempt() -> AlterPartitionReassignmentsResponse:
            answer = client.ask_controller(request, AlterPartitionReassignmentsResponse)
            check("the move", answer.error_code)  # on a busy machine the controller may be none any more: the next one is asked
            return answer

        return client.until_done(attempt)

    response = cluster.ask(ask, seconds=90.0)
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.NONE
    errors = [(each.partition_index, each.error_code) for each in response.responses[0].partitions if each.error_code]
    assert errors == []


def is_moving(cluster: Cluster) -> bool:
    """Whether any partition is being moved, or no broker knows."""

    def ask(client: Client) -> ListPartitionReassignmentsResponse:
        return client.ask_controller(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)

    try:
        response = cluster.ask(ask)
    except ClientError:
        return True
    assert isinstance(response, ListPartitionReassignmentsResponse)
    return response.error_code != ErrorCode.NONE or bool(response.topics)


def replicas_of(cluster: Cluster, topic: str, partitions: int) -> list[list[int]]:
    """Of every partition, the preferred leader first."""
    return [list(cluster.partition(topic, index).replica_nodes) for index in range(partitions)]


def wait_for_replicas(cluster: Cluster, topic: str, targets: list[list[int]]) -> None:
    """Until the broker that is asked has heard of it."""

    def are_there() -> bool:
        try:
            return replicas_of(cluster, topic, len(targets)) == targets
        except (ClientError, LookupError):
            return False

    eventually(are_there, SECONDS, f"{topic} has the replicas {targets}")


def move_to_the_end(cluster: Cluster, topic: str, *targets: list[int]) -> None:
    """Of every partition from the first on; returns when nothing moves any more."""
    move(cluster, topic, dict(enumerate(targets)))
    eventually(lambda: not is_moving(cluster), seconds=SECONDS, what=f"{topic} is moved to {targets}")
    wait_for_replicas(cluster, topic, list(targets))


def elect_preferred(cluster: Cluster, topic: str, *partitions: int) -> None:
    """Returns when the controller has done it, or found that it was done."""
    request = ElectLeadersRequest(
        election_type=0, topic_partitions=[ElectTopicPartitions(topic=topic, partitions=list(partitions))], timeout_ms=10_000
    )

    def ask(client: Client) -> ElectLeadersResponse:
        return client.ask_controller(request, ElectLeadersResponse)

    response = cluster.ask(ask, seconds=90.0)
    assert isinstance(response, ElectLeadersResponse)
    errors = {each.error_code for result in response.replica_election_results for each in result.partition_result}
    assert response.error_code == ErrorCode.NONE
    assert errors <= {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
