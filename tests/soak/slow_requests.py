"""What the topics of a slow disk ask of their brokers: one question each, of whoever leads or controls, once.

Every answer has an `error_code`. Raises ClientError when nobody answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.topic_partition import TopicPartition
from tests.support.admin_requests import SET, TOPIC

TIMEOUT_MS = 30_000
EARLIEST, LATEST = -2, -1


def create(client: Cluster, topic: CreatableTopic) -> Any:
    """The result of the topic."""
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    return client.ask(client.controller, request, CreateTopicsResponse).topics[0]


def delete(client: Cluster, topic: str) -> Any:
    """The result of the topic."""
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS)
    return client.ask(client.controller, request, DeleteTopicsResponse).responses[0]


def describe(client: Cluster, topic: str) -> MetadataResponseTopic:
    """What any broker knows."""
    return client.refresh([topic]).topics[0]


def produce(client: Cluster, partition: TopicPartition, batch: bytes) -> Any:
    """acks=all; the result of the partition."""
    data = PartitionProduceData(index=partition.partition, records=batch)
    request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])])
    return client.ask_broker(client.leader(partition), request, ProduceResponse).responses[0].partition_responses[0]


def fetch(client: Cluster, partition: TopicPartition, offset: int, max_bytes: int) -> Any:
    """The result of the partition. Raises AssertionError when the request as a whole is refused."""
    asked = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = FetchTopic(topic=partition.topic, partitions=[asked])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
    answer = client.ask_broker(client.leader(partition), request, FetchResponse)
    assert not answer.error_code, answer
    return answer.responses[0].partitions[0]


def offset(client: Cluster, partition: TopicPartition, timestamp: int) -> Any:
    """ListOffsets; the result of the partition."""
    asked = ListOffsetsTopic(
        name=partition.topic, partitions=[ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)]
    )
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    return client.ask_broker(client.leader(partition), request, ListOffsetsResponse).topics[0].partitions[0]


def delete_records(client: Cluster, partition: TopicPartition, before: int) -> Any:
    """The result of the partition."""
    asked = DeleteRecordsTopic(
        name=partition.topic, partitions=[DeleteRecordsPartition(partition_index=partition.partition, offset=before)]
    )
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
    return client.ask_broker(client.leader(partition), request, DeleteRecordsResponse).topics[0].partitions[0]


def configure(client: Cluster, topic: str, configs: Mapping[str, str]) -> Any:
    """The result of the topic."""
    changes = [AlterableConfig(name=name, config_operation=SET, value=value) for name, value in configs.items()]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=changes)], validate_only=False
    )
    return client.ask(client.controller, request, IncrementalAlterConfigsResponse).responses[0]


def move(client: Cluster, broker_id: int, partition: TopicPartition, log_dir: str) -> Any:
    """To another directory of that broker; the result of the partition."""
    topic = AlterReplicaLogDirTopic(name=partition.topic, partitions=[partition.partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=log_dir, topics=[topic])])
    return client.ask_broker(broker_id, request, AlterReplicaLogDirsResponse).results[0].partitions[0]


def reassign(client: Cluster, partition: TopicPartition, replicas: Iterable[int]) -> Any:
    """To other brokers; the result of the partition, or that of the request when that is refused."""
    asked = ReassignablePartition(partition_index=partition.partition, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=partition.topic, partitions=[asked])], timeout_ms=TIMEOUT_MS
    )
    answer = client.ask(client.controller, request, AlterPartitionReassignmentsResponse)
    return answer if answer.error_code else answer.responses[0].partitions[0]


def is_settled(client: Cluster) -> bool:
    """Whether no replica is on its way to another broker, and all replicas are in sync."""
    try:
        moving = client.ask(client.controller, ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
        known = client.refresh(None).topics
    except ClientError:
        return False
    if moving.error_code or moving.topics:
        return False
    return all(
        partition.leader_id >= 0 and set(partition.isr_nodes) == set(partition.replica_nodes)
        for topic in known
        for partition in topic.partitions
    )
