"""Reads LeaderAndIsr and StopReplica partition by partition, in the form of any version, and builds the answers.

Used by the replica manager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.storage.upkeep.directory_renames import DirectoryRename

logger = logging.getLogger(__name__)

EPOCH_DURING_DELETE = -2
"""The leader epoch in a StopReplica for a deleted topic (LeaderAndIsr.EpochDuringDelete)."""

NO_EPOCH = -1
"""Value for versions without a leader epoch."""


class NamedState(NamedTuple):
    """The state of a partition in LeaderAndIsr. The topic id is ZERO_UUID in versions without one."""

    topic: str
    topic_id: bytes
    state: LeaderAndIsrPartitionState


def named_states(request: LeaderAndIsrRequest) -> Iterator[NamedState]:
    """The states in a LeaderAndIsr, topic by topic."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield NamedState(topic.topic_name, topic.topic_id, state)
    by_name: dict[str, list[LeaderAndIsrPartitionState]] = {}
    for state in request.ungrouped_partition_states:  # versions 0 and 1
        by_name.setdefault(state.topic_name, []).append(state)
    for name, states in by_name.items():
        for state in states:
            yield NamedState(name, ZERO_UUID, state)


class LeaderAndIsrAnswer:
    """Builds the answer to LeaderAndIsr, one partition at a time."""

    __slots__ = ("_errors", "_topics", "deleted")

    def __init__(self) -> None:
        self.deleted: set[TopicPartition] = set()
        """Partitions that StopReplica deleted since the request arrived."""
        self._topics: dict[str, LeaderAndIsrTopicError] = {}
        self._errors: list[LeaderAndIsrPartitionError] = []

    def add(self, named: NamedState, code: ErrorCode) -> None:
        """Add the result of one partition."""
        topic = self._topics.get(named.topic)
        if topic is None:
            topic = self._topics[named.topic] = LeaderAndIsrTopicError(topic_id=named.topic_id)
        error = LeaderAndIsrPartitionError(topic_name=named.topic, partition_index=named.state.partition_index, error_code=code)
        topic.partition_errors.append(error)
        self._errors.append(error)

    def is_over(self, named: NamedState) -> bool:
        """Whether the partition was deleted meanwhile, so that its state must not be applied."""
        return (named.topic, named.state.partition_index) in self.deleted

    def response(self) -> LeaderAndIsrResponse:
        """The answer, in the forms of all versions."""
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=list(self._topics.values()), partition_errors=self._errors)


def stopped_partitions(request: StopReplicaRequest) -> Iterable[tuple[TopicPartition, int, bool]]:
    """(partition, leader epoch, whether to delete the log) for the form of any version."""
    for topic_state in request.topic_states:
        for state in topic_state.partition_states:
            yield TopicPartition(topic_state.topic_name, state.partition_index), state.leader_epoch, state.delete_partition
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), NO_EPOCH, request.delete_partitions
    for ungrouped in request.ungrouped_partitions:
        yield TopicPartition(ungrouped.topic_name, ungrouped.partition_index), NO_EPOCH, request.delete_partitions


class StopReplicaAnswer:
    """Builds the answer to StopReplica, one partition at a time."""

    __slots__ = ("_errors", "_renames")

    def __init__(self) -> None:
        self._errors: list[StopReplicaPartitionError] = []
        self._renames: list[tuple[StopReplicaPartitionError, DirectoryRename]] = []

    def add(self, topic_partition: TopicPartition, code: ErrorCode, renames: Iterable[DirectoryRename]) -> None:
        """Add the result of one partition. Deletions of its logs may still fail on the disk."""
        error = StopReplicaPartitionError(topic_name=topic_partition.topic, partition_index=topic_partition.partition, error_code=code)
        self._errors.append(error)
        self._renames.extend((error, each) for each in renames)

    def response(self) -> StopReplicaResponse:
        """The answer, once all logs are renamed for deletion."""
        for error, rename in self._renames:
            if rename.failure is not None:
                error.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=self._errors)


NO_LEADER = -1
MOST_NAMED = 10


def log_not_followed(by_leader: dict[int, list[TopicPartition]]) -> None:
    """Log one line per leader for the partitions that cannot be followed: leader unknown, or none because no replica in sync is left.

    Empties `by_leader`.
    """
    for leader, partitions in by_leader.items():
        names = ", ".join(map(str, partitions[:MOST_NAMED])) + (" and others" if len(partitions) > MOST_NAMED else "")
        if leader == NO_LEADER:
            logger.info("%d partitions have no leader; they are followed once one is elected: %s", len(partitions), names)
        else:
            logger.error("cannot follow broker %d, which is not alive, in %d partitions: %s", leader, len(partitions), names)
    by_leader.clear()
