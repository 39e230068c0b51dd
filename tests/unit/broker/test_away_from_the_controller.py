"""What a broker that is not the controller answers to those who take it for the controller."""

import asyncio
import inspect
from typing import Any

import pytest

from ottla.broker.handlers.control.allocate_producer_ids import handle_allocate_producer_ids
from ottla.broker.handlers.control.alter_partition import handle_alter_partition
from ottla.broker.handlers.control.controlled_shutdown import handle_controlled_shutdown
from ottla.broker.handlers.control.update_features import handle_update_features
from ottla.broker.handlers.topics.create_partitions import handle_create_partitions
from ottla.broker.handlers.topics.create_topics import handle_create_topics
from ottla.broker.handlers.topics.delete_topics import handle_delete_topics
from ottla.broker.handlers.topics.elect_leaders import handle_elect_leaders
from ottla.broker.handlers.topics.list_partition_reassignments import handle_list_partition_reassignments
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.errors import NotController
from ottla.controller.state.context import ControllerContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.update_features import UpdateFeaturesRequest
from ottla.replication.ports.cluster import MetadataCache
from tests.support.admin_requests import a_topic, said
from tests.support.connections import ClientConnection
from tests.support.services import services_with


class Inactive:
    """A controller that waits for its turn."""

    is_active = False
    broker_epoch = 5

    def __init__(self) -> None:
        self.context = ControllerContext()

    async def refuse(self, *_: object, **__: object) -> Any:
        raise NotController("This is not the correct controller for this cluster.")

    elect_leaders = alter_isr = controlled_shutdown = allocate_producer_id_block = refuse


def ask(handler: Any, request: object, version: int) -> Any:
    broker = services_with(controller=Inactive(), metadata=MetadataCache(), metadata_waits=MetadataWaits())
    context = RequestContext(0, version, 0, None, ClientConnection(), broker, lambda _, __: CLOSE)

    async def answer() -> Any:
        response = handler(request, context)
        return await response if inspect.isawaitable(response) else response

    return asyncio.run(answer())


def test_topics_are_refused_one_by_one() -> None:
    refused = ("NOT_CONTROLLER", None)
    created = ask(handle_create_topics, CreateTopicsRequest(topics=[a_topic("a"), a_topic("b")]), 7)
    assert [(result.name, ErrorCode.of(result.error_code).name) for result in created.topics] == [
        ("a", "NOT_CONTROLLER"),
        ("b", "NOT_CONTROLLER"),
    ]
    states = [DeleteTopicState(name="a", topic_id=bytes(16)), DeleteTopicState(name=None, topic_id=b"\x01" * 16)]
    deleted = ask(handle_delete_topics, DeleteTopicsRequest(topics=states), 6)
    assert [(result.name, result.topic_id, *said(result)) for result in deleted.responses] == [
        ("a", bytes(16), *refused),
        (None, b"\x01" * 16, *refused),
    ]
    grown = ask(handle_create_partitions, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2)]), 3)
    assert [(result.name, *said(result)) for result in grown.results] == [("a", *refused)]


def test_elections_are_refused_partition_by_partition() -> None:
    asked = [TopicPartitions(topic="t", partitions=[0, 1])]
    response = ask(handle_elect_leaders, ElectLeadersRequest(topic_partitions=asked, timeout_ms=0), 2)
    assert response.error_code == ErrorCode.NONE
    assert [said(each) for each in response.replica_election_results[0].partition_result] == [("NOT_CONTROLLER", None)] * 2
    assert ask(handle_elect_leaders, ElectLeadersRequest(topic_partitions=[], timeout_ms=0), 2).replica_election_results == []


@pytest.mark.parametrize(
    ("handler", "request_class", "code"),
    [
        (handle_alter_partition, AlterPartitionRequest, ErrorCode.NOT_CONTROLLER),
        (handle_allocate_producer_ids, AllocateProducerIdsRequest, ErrorCode.NOT_CONTROLLER),
        (handle_list_partition_reassignments, ListPartitionReassignmentsRequest, ErrorCode.NOT_CONTROLLER),
        (handle_update_features, UpdateFeaturesRequest, ErrorCode.NOT_CONTROLLER),
        (handle_controlled_shutdown, ControlledShutdownRequest, ErrorCode.STALE_CONTROLLER_EPOCH),
    ],
)
def test_the_rest_is_refused_as_a_whole(handler: Any, request_class: Any, code: ErrorCode) -> None:
    assert ask(handler, request_class(), 0).error_code == code
