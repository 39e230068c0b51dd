"""Requests with very many topics that have no partitions: each topic is a step, whether the client may ask about it or not."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.handlers.configs.alter_client_quotas import handle_alter_client_quotas
from ottla.broker.handlers.data.delete_records import handle_delete_records
from ottla.broker.handlers.data.list_offsets import handle_list_offsets
from ottla.broker.handlers.data.offset_for_leader_epoch import handle_offset_for_leader_epoch
from ottla.broker.handlers.topics.alter_partition_reassignments import handle_alter_partition_reassignments
from ottla.broker.handlers.topics.elect_leaders import handle_elect_leaders
from ottla.broker.handlers.transactions.describe_producers import handle_describe_producers
from ottla.broker.handlers.transactions.write_txn_markers import handle_write_txn_markers
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.broker.security.authorizer import AllowAll
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasRequestEntryData
from ottla.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignableTopic
from ottla.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderTopic
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.replication.ports.cluster import MetadataCache
from tests.support import pauses
from tests.support.connections import ClientConnection
from tests.support.grants import Grants
from tests.support.services import services_with

COUNT = 50
NAMES = [f"t{number}" for number in range(COUNT)]
NO_ELECTION = 9

Handler = Callable[[Any, RequestContext], Coroutine[Any, Any, Any]]


def steps_of(handler: Handler, request: object, *, is_allowed: bool) -> int:
    """The number of times that other work may run, with the shortest slices."""
    services = services_with(metadata=MetadataCache(), replica_manager=None)
    connection = ClientConnection(AllowAll() if is_allowed else Grants())
    context = RequestContext(0, 1, 0, None, connection, services, lambda _, __: CLOSE)
    return pauses.steps_of(handler(request, context))[0]


@pytest.mark.parametrize("is_allowed", [True, False])
@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (handle_list_offsets, ListOffsetsRequest(topics=[ListOffsetsTopic(name=name) for name in NAMES])),
        (handle_offset_for_leader_epoch, OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name) for name in NAMES])),
        (handle_delete_records, DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name) for name in NAMES])),
        (handle_describe_producers, DescribeProducersRequest(topics=[TopicRequest(name=name) for name in NAMES])),
        (
            handle_elect_leaders,
            ElectLeadersRequest(election_type=NO_ELECTION, topic_partitions=[TopicPartitions(topic=name) for name in NAMES]),
        ),
    ],
)
def test_each_topic_is_a_step(handler: Handler, request_: object, is_allowed: bool) -> None:
    assert steps_of(handler, request_, is_allowed=is_allowed) >= COUNT


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (
            handle_alter_partition_reassignments,
            AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name) for name in NAMES]),
        ),
        (
            handle_write_txn_markers,
            WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=[WritableTxnMarkerTopic(name=name) for name in NAMES])]),
        ),
        (handle_alter_client_quotas, AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData() for _ in NAMES])),
    ],
)
def test_each_element_that_is_refused_is_a_step(handler: Handler, request_: object) -> None:
    assert steps_of(handler, request_, is_allowed=False) >= COUNT
