"""Collects the answers of all brokers of a cluster about a topic, for the report of a failure."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from tests.support.cluster import Cluster, ClusterBroker
from tests.support.wire_client import WireClient, a_wire_client

_SECONDS = 5.0
_EARLIEST, _LATEST = -2, -1


def answers_about(cluster: Cluster, topic: str) -> str:
    """Metadata, the ends of the logs, and where leader epochs end, as every broker that runs tells them to a consumer."""
    return "\n".join(f"--- broker {broker.id} says of {topic}:\n{_answers(broker, topic)}" for broker in cluster.brokers.values())


def _answers(broker: ClusterBroker, topic: str) -> str:
    if not broker.answers:
        return "it does not run"
    lines: list[str] = []
    try:
        with a_wire_client(broker.port, _SECONDS) as client:
            lines.extend(_ask(client, topic))
    except OSError as error:
        lines.append(f"{type(error).__name__}: {error}")
    return "\n".join(lines)


def _ask(client: WireClient, topic: str) -> Iterator[str]:
    told = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False), 8)
    (found,) = told.topics
    brokers = sorted((each.node_id, each.port) for each in told.brokers)
    yield f"brokers {brokers}, controller {told.controller_id}, {_name(found.error_code)}"
    partitions: list[MetadataResponsePartition] = found.partitions
    for each in partitions:
        number, epoch = each.partition_index, each.leader_epoch
        start, end = (_offset(client, topic, number, timestamp) for timestamp in (_EARLIEST, _LATEST))
        yield (
            f"partition {number}: {_name(each.error_code)}, leader {each.leader_id} in epoch {epoch}, ISR {list(each.isr_nodes)}, "
            f"start {start}, high watermark {end}, end of epoch {epoch}: {_end_of_epoch(client, topic, each)}"
        )


def _offset(client: WireClient, topic: str, number: int, timestamp: int) -> str:
    asked = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]), 5)
    found = answer.topics[0].partitions[0]
    return str(found.offset) if found.error_code == ErrorCode.NONE else _name(found.error_code)


def _end_of_epoch(client: WireClient, topic: str, partition: MetadataResponsePartition) -> str:
    asked = OffsetForLeaderPartition(
        partition=partition.partition_index, current_leader_epoch=partition.leader_epoch, leader_epoch=partition.leader_epoch
    )
    answer = client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]), 3)
    found = answer.topics[0].partitions[0]
    return f"{found.end_offset} of epoch {found.leader_epoch}" if found.error_code == ErrorCode.NONE else _name(found.error_code)


def _name(code: int) -> str:
    return ErrorCode.of(code).name
