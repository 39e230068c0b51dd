"""What LeaderAndIsr and StopReplica say, partition by partition, in whatever form their version has it. For the replica manager."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.uuid import ZERO_UUID
from storage.topic_partition import TopicPartition

EPOCH_DURING_DELETE = -2
"""The leader epoch by which StopReplica says that the topic is deleted (LeaderAndIsr.EpochDuringDelete)."""

NO_EPOCH = -1
"""The version has no leader epoch."""


def states_by_topic(request: LeaderAndIsrRequest) -> Iterable[tuple[str, bytes, list[LeaderAndIsrPartitionState]]]:
    """(topic, its id or ZERO_UUID, states)."""
    for topic in request.topic_states:
        yield topic.topic_name, topic.topic_id, topic.partition_states
    by_name: dict[str, list[LeaderAndIsrPartitionState]] = {}
    for state in request.ungrouped_partition_states:  # versions 0 and 1
        by_name.setdefault(state.topic_name, []).append(state)
    for name, states in by_name.items():
        yield name, ZERO_UUID, states


def stopped_partitions(request: StopReplicaRequest) -> Iterable[tuple[TopicPartition, int, bool]]:
    """(partition, leader epoch, delete the log) of every version's form."""
    for topic_state in request.topic_states:
        for state in topic_state.partition_states:
            yield TopicPartition(topic_state.topic_name, state.partition_index), state.leader_epoch, state.delete_partition
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), NO_EPOCH, request.delete_partitions
    for ungrouped in request.ungrouped_partitions:
        yield TopicPartition(ungrouped.topic_name, ungrouped.partition_index), NO_EPOCH, request.delete_partitions
