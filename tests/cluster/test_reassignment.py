"""Partitions move between real brokers while they are written, and while brokers die; nothing that was acknowledged is lost."""

from pathlib import Path

from broker.cli.client.cluster import Cluster as Client
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.history import History


def move(cluster: Cluster, topic: str, targets: dict[int, list[int] | None]) -> None:
    partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in targets.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=partitions)])

    def ask(client: Client) -> AlterPartitionReassignmentsResponse:
        return client.ask_controller(request, AlterPartitionReassignmentsResponse)

    response = cluster.ask(ask)
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.NONE
    errors = [(each.partition_index, each.error_code) for each in response.responses[0].partitions if each.error_code]
    assert errors == []


def is_moving(cluster: Cluster) -> bool:
    def ask(client: Client) -> ListPartitionReassignmentsResponse:
        return client.ask_controller(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)

    response = cluster.ask(ask)
    assert isinstance(response, ListPartitionReassignmentsResponse)
    return response.error_code != ErrorCode.NONE or bool(response.topics)


def replicas_of(cluster: Cluster, topic: str, partitions: int) -> list[list[int]]:
    return [list(cluster.partition(topic, index).replica_nodes) for index in range(partitions)]


def wait_for_replicas(cluster: Cluster, targets: list[list[int]]) -> None:
    """Until the broker that is asked has heard of it."""
    eventually(lambda: replicas_of(cluster, "t", len(targets)) == targets, seconds=30, what=f"t has the replicas {targets}")


def test_partitions_go_round_and_round_while_they_are_written_and_read(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", replicas=[[0, 1], [1, 2]])
        history = History()
        with a_writer(cluster, "t", history, partitions=2) as writer, a_reader(cluster, "t", history, partitions=2):
            for turn in range(4):
                targets = [[(turn + 1 + index) % 3, (turn + 2 + index) % 3] for index in range(2)]
                move(cluster, "t", dict(enumerate(targets)))
                writer.go_on_for(50)
                eventually(lambda: not is_moving(cluster), seconds=30)
                wait_for_replicas(cluster, targets)
            writer.go_on_for(50)
        read_all(cluster, "t", history, partitions=2)
        assert history.violations() == []


def test_the_next_controller_ends_what_the_one_that_was_killed_began(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 4) as cluster:
        controller = cluster.controller_id()
        first, second, third = (each for each in range(4) if each != controller)
        cluster.create_topic("t", partitions=2, replicas=[[first, second], [second, first]])
        history = History()
        with a_writer(cluster, "t", history, partitions=2) as writer:
            writer.go_on_for(200)
            move(cluster, "t", {0: [third, first], 1: [third, second]})
            cluster.broker(controller).kill()
            writer.go_on_for(200)
            wait_for_replicas(cluster, [[third, first], [third, second]])
            eventually(lambda: not is_moving(cluster), seconds=30)
            cluster.broker(controller).start()
        read_all(cluster, "t", history, partitions=2)
        assert history.violations() == []


def test_a_new_replica_that_dies_is_filled_when_it_is_back(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 4) as cluster:
        controller = cluster.controller_id()
        first, second, third = (each for each in range(4) if each != controller)
        cluster.create_topic("t", replicas=[[first, second]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            writer.go_on_for(500)
            move(cluster, "t", {0: [third, second]})
            cluster.broker(third).kill()
            writer.go_on_for(100)
            cluster.broker(third).start()
            wait_for_replicas(cluster, [[third, second]])
            writer.go_on_for(100)
        assert cluster.leader_of("t", 0) in {second, third}
        read_all(cluster, "t", history)
        assert history.violations() == []
