"""Creates, extends and deletes topics, and deletes records, with one outcome per topic."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ottla.client.cluster import Cluster, ClusterChange, UnknownTopic
from ottla.client.errors import ClientError, Refused, check
from ottla.client.offsets import by_topic
from ottla.client.reachable import at_once
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.protocol.topic_partition import TopicPartition

DEFAULT = -1
_KNOWN_SECONDS = 10.0

Outcomes = dict[str, ClientError | None]
"""The error of each topic by name, None for success."""


class NewTopic(NamedTuple):
    """A topic to create. Assignments (replicas per partition) determine the two counts."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str] | None = None
    assignments: Sequence[Sequence[int]] = ()


def all_topics(cluster: Cluster) -> list[MetadataResponseTopic]:
    """Every topic, by name."""
    answer = cluster.refresh(None)
    return sorted((topic for topic in answer.topics if topic.name is not None), key=lambda topic: topic.name or "")


def create_topics(cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Outcomes:
    """Create topics. Returns when all reachable brokers have their metadata, because the next command may use any of
    them."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=DEFAULT if topic.assignments else topic.partitions,
                replication_factor=DEFAULT if topic.assignments else topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
                    for number, replicas in enumerate(topic.assignments)
                ],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in (topic.configs or {}).items()],
            )
            for topic in topics
        ],
        timeout_ms=_timeout_ms(cluster),
        validate_only=validate_only,
    )

    creation = ClusterChange(cluster, request, CreateTopicsResponse, ErrorCode.TOPIC_ALREADY_EXISTS)

    def attempt() -> Outcomes:
        answer = creation.ask(cluster.controller)
        _retry_elsewhere(result.error_code for result in answer.topics)
        return {result.name: _outcome(creation, result.name, result.error_code, result.error_message) for result in answer.topics}

    outcomes = cluster.until_done(attempt)
    created = [name for name, outcome in outcomes.items() if outcome is None]
    if created and not validate_only:
        at_once(cluster, cluster.broker_ids(), lambda own, broker_id: _wait_until_known(own, broker_id, created))
    return outcomes


def _wait_until_known(cluster: Cluster, broker_id: int, topics: Sequence[str]) -> None:
    """Wait until a broker has the metadata of new topics, as the controller answers before. A timeout is no failure:
    the topics exist."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)

    def attempt() -> None:
        for topic in cluster.ask_briefly(broker_id, request, MetadataResponse, _KNOWN_SECONDS).topics:
            check(f"topic {topic.name}", topic.error_code)

    with suppress(ClientError):
        cluster.until_done(attempt, timeout_seconds=_KNOWN_SECONDS)


def delete_topics(cluster: Cluster, names: Sequence[str]) -> Outcomes:
    """Delete topics."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=_timeout_ms(cluster))
    deletion = ClusterChange(cluster, request, DeleteTopicsResponse, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def attempt() -> Outcomes:
        answer = deletion.ask(cluster.controller)
        _retry_elsewhere(result.error_code for result in answer.responses)
        return {
            result.name or "": _outcome(deletion, result.name or "", result.error_code, result.error_message) for result in answer.responses
        }

    return cluster.until_done(attempt)


def grow_topic(
    cluster: Cluster, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
) -> None:
    """Extend a topic to `count` partitions. Raises Refused."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None if not assignments else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments],
            )
        ],
        timeout_ms=_timeout_ms(cluster),
        validate_only=validate_only,
    )
    growth = ClusterChange(cluster, request, CreatePartitionsResponse, ErrorCode.INVALID_PARTITIONS)

    def attempt() -> None:
        answer = growth.ask(cluster.controller)
        _retry_elsewhere(result.error_code for result in answer.results)
        for result in answer.results:
            outcome = _outcome(growth, result.name, result.error_code, result.error_message)
            if outcome is not None:
                raise outcome

    cluster.until_done(attempt)


def delete_records(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete all records below the offsets (-1: up to the high watermark); returns the new start of each partition.
    Raises Refused."""
    found: dict[TopicPartition, int] = {}

    def attempt() -> None:
        missing = [partition for partition in offsets if partition not in found]
        for leader, partitions in cluster.by_leader(missing).items():
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(partition_index=number, offset=offsets[TopicPartition(topic, number)])
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions).items()
                ],
                timeout_ms=_timeout_ms(cluster),
            )
            answer = cluster.ask_broker(leader, request, DeleteRecordsResponse)
            for topic in answer.topics:
                for partition in topic.partitions:
                    name = TopicPartition(topic.name, partition.partition_index)
                    check(str(name), partition.error_code)
                    found[name] = partition.low_watermark

    cluster.until_done(attempt)
    return {partition: found[partition] for partition in offsets}


def _timeout_ms(cluster: Cluster) -> int:
    """Timeout for the broker, shorter than this client's own, so that its answer arrives before."""
    return int(cluster.timeout_seconds * 900)


def _outcome(change: ClusterChange[Any], name: str, code: int, message: str | None) -> ClientError | None:
    if not code:
        return None
    return change.explained(UnknownTopic(name) if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else Refused(f"topic {name}", code, message))


def _retry_elsewhere(codes: Iterable[int]) -> None:
    if ErrorCode.NOT_CONTROLLER in codes:
        raise Refused("the controller", ErrorCode.NOT_CONTROLLER)
