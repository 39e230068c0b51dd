"""A partition in Metadata, as a client of a listener may see it: leaders and replicas that the listener cannot reach."""

import pytest

from ottla.broker.handlers.topics.metadata import visible_partition
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponsePartition
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from ottla.replication.ports.cluster import MetadataCache
from tests.support.connections import ClientConnection
from tests.support.services import services_with


def seen(version: int, leader: int) -> MetadataResponsePartition:
    """By a client of listener B: broker 0 has it, broker 1 does not, broker 2 is dead."""
    cluster = MetadataCache()
    brokers = [
        UpdateMetadataBroker(
            id=broker_id,
            endpoints=[UpdateMetadataEndpoint(port=1, host="h", listener=name, security_protocol=0) for name in listeners],
        )
        for broker_id, listeners in ((0, "AB"), (1, "A"))
    ]
    cluster.update(UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers))
    connection = ClientConnection(listener_name="B")
    context = RequestContext(ApiKey.METADATA, version, 0, None, connection, services_with(metadata=cluster), lambda _, __: CLOSE)
    state = UpdateMetadataPartitionState(
        partition_index=4, leader=leader, leader_epoch=7, replicas=(0, 1, 2), isr=(0, 2), offline_replicas=(2,)
    )
    return visible_partition(state, context)


@pytest.mark.parametrize(
    ("version", "leader", "code"),
    [
        (1, 0, ErrorCode.NONE),
        (5, 2, ErrorCode.LEADER_NOT_AVAILABLE),
        (12, 2, ErrorCode.LEADER_NOT_AVAILABLE),
        (12, -1, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, 1, ErrorCode.LEADER_NOT_AVAILABLE),
        (6, 1, ErrorCode.LISTENER_NOT_FOUND),
    ],
)
def test_a_leader_that_the_listener_cannot_reach_is_none(version: int, leader: int, code: ErrorCode) -> None:
    partition = seen(version, leader)
    assert (partition.error_code, partition.leader_id) == (code, 0 if code == ErrorCode.NONE else -1)
    assert (partition.partition_index, partition.leader_epoch) == (4, 7)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([0, 1, 2], [0, 2], [2])


def test_version_0_leaves_out_replicas_that_the_listener_cannot_reach() -> None:
    partition = seen(0, 0)
    assert (partition.error_code, partition.leader_id) == (ErrorCode.REPLICA_NOT_AVAILABLE, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ([0], [0])
    assert seen(0, 1).error_code == ErrorCode.LEADER_NOT_AVAILABLE
