"""The partitions that are being moved, among very many that are not."""

from ottla.broker.handlers.topics.list_partition_reassignments import handle_list_partition_reassignments
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.controller.state.context import ControllerContext
from ottla.controller.znodes.layout import ReplicaAssignment
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.support.connections import ClientConnection
from tests.support.pauses import steps_of
from tests.support.services import services_with

MOVING = ReplicaAssignment((3, 1), adding_replicas=(3,), removing_replicas=(1,))
TOPICS = 50


class Active:
    """The controller of a cluster in which partition 1 of each topic is being moved."""

    is_active = True

    def __init__(self) -> None:
        self.context = ControllerContext()
        for number in range(TOPICS):
            self.context.assignments[f"t{number}"] = {0: ReplicaAssignment((1, 2)), 1: MOVING}


def listed(request: ListPartitionReassignmentsRequest) -> tuple[int, ListPartitionReassignmentsResponse]:
    """The number of steps, and the response."""
    context = RequestContext(0, 0, 0, None, ClientConnection(), services_with(controller=Active()), lambda _, __: CLOSE)
    return steps_of(handle_list_partition_reassignments(request, context))


def test_each_topic_is_a_step() -> None:
    count, response = listed(ListPartitionReassignmentsRequest(topics=None))
    assert count >= TOPICS
    assert [topic.name for topic in response.topics] == [f"t{number}" for number in range(TOPICS)]
    (partition,) = response.topics[0].partitions
    assert (partition.partition_index, partition.replicas, partition.adding_replicas, partition.removing_replicas) == (1, [3, 1], [3], [1])


def test_only_the_named_partitions_are_listed() -> None:
    named = [
        ListPartitionReassignmentsTopics(name="t7", partition_indexes=[0, 1]),
        ListPartitionReassignmentsTopics(name="t8", partition_indexes=[0]),
        ListPartitionReassignmentsTopics(name="unknown", partition_indexes=[1]),
    ]
    _, response = listed(ListPartitionReassignmentsRequest(topics=named))
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics] == [("t7", [1])]
