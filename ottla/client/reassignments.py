"""Reassigns partitions to other brokers (KIP-455), sets their throttles (KIP-73), and elects leaders (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster, ClusterChange
from ottla.client.config_admin import Change, ConfigOperation, ConfigResourceType, alter_configs
from ottla.client.errors import ClientError, Refused, SomeRefused, check
from ottla.client.offsets import by_topic
from ottla.client.reachable import at_once
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from ottla.protocol.topic_partition import TopicPartition

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"

Outcomes = dict[TopicPartition, ClientError | None]
"""The error of each partition, None for success."""


class Move(NamedTuple):
    """A partition that is being reassigned: all replicas, those being added and those being removed."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    @property
    def target(self) -> list[int]:
        """The replicas after the reassignment."""
        return [broker for broker in self.replicas if broker not in self.removing]


def replicas_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[int]]:
    """The current replicas. Raises ClientError for a partition that does not exist."""
    wanted = list(partitions)
    answer = cluster.refresh(dict.fromkeys(name.topic for name in wanted))
    found: dict[TopicPartition, list[int]] = {}
    for topic in answer.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Refused(f"topic {topic.name}", topic.error_code, "there is no such topic")
        check(f"topic {topic.name}", topic.error_code)
        for partition in topic.partitions:
            found[TopicPartition(topic.name or "", partition.partition_index)] = list(partition.replica_nodes)
    missing = [str(name) for name in wanted if name not in found]
    if missing:
        raise ClientError(f"there is no {', '.join(missing)}")
    return {name: found[name] for name in wanted}


def reassign(cluster: Cluster, plan: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
    """Begin to reassign partitions; with None cancel their reassignment."""
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=_timeout_ms(cluster),
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(partition_index=number, replicas=_listed(plan[TopicPartition(topic, number)]))
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(plan).items()
        ],
    )
    change = ClusterChange(cluster, request, AlterPartitionReassignmentsResponse, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)

    def attempt() -> Outcomes:
        answer = change.ask(cluster.controller)
        check("the controller", answer.error_code, answer.error_message)
        found: Outcomes = {}
        for topic in answer.responses:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                code = partition.error_code
                found[name] = change.explained(Refused(str(name), code, partition.error_message)) if code else None
        return dict(sorted(found.items()))  # brokers answer in any order

    return cluster.until_done(attempt)


def moves(cluster: Cluster, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Move]:
    """The reassignments in progress, of all partitions or of these."""
    topics = None
    if partitions is not None:
        topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=found) for name, found in by_topic(partitions).items()]
    request = ListPartitionReassignmentsRequest(timeout_ms=_timeout_ms(cluster), topics=topics)

    def attempt() -> dict[TopicPartition, Move]:
        answer = cluster.ask(cluster.controller, request, ListPartitionReassignmentsResponse)
        check("the controller", answer.error_code, answer.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Move(each.replicas, each.adding_replicas, each.removing_replicas)
            for topic in answer.topics
            for each in topic.partitions
        }

    return cluster.until_done(attempt)


def throttle(
    cluster: Cluster, current: Mapping[TopicPartition, Sequence[int]], plan: Mapping[TopicPartition, Sequence[int]], rate: int
) -> None:
    """Limit the replication from `current` to `plan` to `rate` bytes per second on each live broker. A dead one replicates nothing."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for name, target in plan.items():
        sources = current[name]
        new = [broker for broker in target if broker not in sources]
        leaders.setdefault(name.topic, []).extend(f"{name.partition}:{broker}" for broker in sources)
        followers.setdefault(name.topic, []).extend(f"{name.partition}:{broker}" for broker in new)
        brokers.update(sources, target)
    for topic in leaders:
        changes = [
            Change(key, ConfigOperation.APPEND, ",".join(found[topic]))
            for key, found in ((LEADER_REPLICAS, leaders), (FOLLOWER_REPLICAS, followers))
            if found[topic]
        ]
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, changes)
    set_rate(cluster, brokers.intersection(cluster.broker_ids()), rate)


def set_rate(cluster: Cluster, brokers: Iterable[int], rate: int | None) -> None:
    """Set the rate of throttled replication on each broker; None removes the limit."""
    operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET
    changes = [Change(key, operation, None if rate is None else str(rate)) for key in (LEADER_RATE, FOLLOWER_RATE)]
    for broker in sorted(brokers):
        alter_configs(cluster, ConfigResourceType.BROKER, str(broker), changes)


def clear_throttles(cluster: Cluster, topics: Iterable[str]) -> None:
    """Remove all replication throttles from these topics and from all live brokers.

    One that cannot be changed keeps no other from being changed. Raises SomeRefused at the end, which names those that are left. A deleted
    topic has no throttles.
    """
    errors: dict[str, ClientError] = {}
    changes = [Change(key, ConfigOperation.DELETE, None) for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
    for topic in dict.fromkeys(topics):
        try:
            alter_configs(cluster, ConfigResourceType.TOPIC, topic, changes)
        except ClientError as error:
            if not (isinstance(error, Refused) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                errors[f"topic {topic}"] = error
    _, silent = at_once(cluster, cluster.broker_ids(), lambda own, broker: set_rate(own, [broker], None))
    errors |= {f"broker {broker}": error for broker, error in silent.items()}
    if errors:
        raise SomeRefused(errors)


def elect(cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, unclean: bool) -> Outcomes:
    """Elect leaders, of all partitions with None: the preferred ones, or unclean ones for partitions without a leader."""
    listed = None
    if partitions is not None:
        listed = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]
    request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=listed, timeout_ms=_timeout_ms(cluster))

    def attempt() -> Outcomes:
        answer = cluster.ask(cluster.controller, request, ElectLeadersResponse)
        check("the controller", answer.error_code)
        found: Outcomes = {}
        for topic in answer.replica_election_results:
            for result in topic.partition_result:
                name = TopicPartition(topic.topic, result.partition_id)
                if result.error_code == ErrorCode.NOT_CONTROLLER:
                    raise Refused("the controller", result.error_code)
                found[name] = Refused(str(name), result.error_code, result.error_message) if result.error_code else None
        return dict(sorted(found.items()))

    return cluster.until_done(attempt)


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _timeout_ms(cluster: Cluster) -> int:
    """Timeout for the broker, shorter than this client's own, so that its answer arrives before."""
    return int(cluster.timeout_seconds * 900)
