"""All partitions of this broker, and the controller's requests about them: LeaderAndIsr, StopReplica, UpdateMetadata.

The request handlers look partitions up here; the controller reaches it through its channel. The high watermarks of all partitions
are checkpointed per log directory (`replication-offset-checkpoint`), so that a restart does not have to start at zero.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator

from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.uuid import ZERO_UUID
from replication.cluster import MetadataCache
from replication.errors import NotLeaderOrFollower, ReplicaStorageFailure, StaleControllerEpoch, UnknownTopicOrPartition
from replication.partition import Partition
from storage.clock import Clock
from storage.errors import LogDirFailure
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 16
"""Log directories made per turn of the event loop while a LeaderAndIsr request is worked off: 16 take about 2 ms."""

EPOCH_DURING_DELETE = -2
"""The leader epoch by which StopReplica says that the topic is deleted (LeaderAndIsr.EpochDuringDelete)."""

NO_EPOCH = -1


class ReplicaManager:
    """The partitions of one broker, by topic and index."""

    __slots__ = ("_clock", "_log_manager", "broker_id", "cluster", "controller_epoch", "offline", "partitions")

    def __init__(self, broker_id: int, log_manager: LogManager, cluster: MetadataCache, clock: Clock) -> None:
        self.broker_id = broker_id
        self.cluster = cluster
        self.controller_epoch = 0
        self.partitions: dict[str, dict[int, Partition]] = {}
        self.offline: set[TopicPartition] = set()
        self._log_manager = log_manager
        self._clock = clock

    # -- lookup --------------------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition if it is hosted here; None otherwise."""
        of_topic = self.partitions.get(topic)
        return of_topic.get(index) if of_topic is not None else None

    def partition_or_raise(self, topic: str, index: int) -> Partition:
        """The partition hosted here.

        Raises ReplicaStorageFailure when its directory is offline, NotLeaderOrFollower when other brokers host it,
        UnknownTopicOrPartition when nobody does.
        """
        partition = self.partition(topic, index)
        if partition is not None:
            return partition
        if TopicPartition(topic, index) in self.offline:
            raise ReplicaStorageFailure(TopicPartition(topic, index))
        known = self.cluster.partition(topic, index)
        if known is not None:
            raise NotLeaderOrFollower(topic, index, known.leader, known.leader_epoch)
        raise UnknownTopicOrPartition(topic, index)

    def __iter__(self) -> Iterator[Partition]:
        for of_topic in self.partitions.values():
            yield from of_topic.values()

    # -- the controller's requests ---------------------------------------------------------------------------------------

    def on_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """UpdateMetadata (api 6): replace what is known of the cluster."""
        try:
            self.cluster.update(request)
        except StaleControllerEpoch as stale:
            logger.warning("refused: %s", stale)
            return UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = max(self.controller_epoch, request.controller_epoch)
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)

    async def on_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """LeaderAndIsr (api 4): become leader or follower of the named partitions, making their logs when they are new."""
        if request.controller_epoch < self.controller_epoch:
            logger.warning(
                "refused LeaderAndIsr of controller %d: its epoch %d is older than %d",
                request.controller_id, request.controller_epoch, self.controller_epoch,
            )  # fmt: skip
            return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        topics: list[LeaderAndIsrTopicError] = []
        errors: list[LeaderAndIsrPartitionError] = []
        done = 0
        for name, topic_id, states in _states_by_topic(request):
            topic_errors: list[LeaderAndIsrPartitionError] = []
            for state in states:
                code = self._apply(name, topic_id, state)
                topic_errors.append(LeaderAndIsrPartitionError(topic_name=name, partition_index=state.partition_index, error_code=code))
                done += 1
                if done % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
            topics.append(LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=topic_errors))
            errors.extend(topic_errors)
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics, partition_errors=errors)

    def _apply(self, topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> ErrorCode:
        """Take one partition's state; the error code for the controller."""
        topic_partition = TopicPartition(topic, state.partition_index)
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.broker_id not in state.replicas:
            logger.warning(
                "LeaderAndIsr names %s, of which this broker %d is no replica %s", topic_partition, self.broker_id, state.replicas
            )
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = self.partition(topic, state.partition_index)
        if partition is not None:
            if topic_id not in (ZERO_UUID, partition.topic_id) and partition.topic_id != ZERO_UUID:
                return ErrorCode.INCONSISTENT_TOPIC_ID
            if state.leader_epoch < partition.leader_epoch:
                return ErrorCode.STALE_CONTROLLER_EPOCH
            if state.leader_epoch == partition.leader_epoch and state.partition_epoch <= partition.partition_epoch:
                return ErrorCode.NONE
        try:
            if partition is None:
                log = self._log_manager.get_or_create(topic_partition, topic_id, is_new=state.is_new)
                if topic_id != ZERO_UUID and log.topic_id not in (ZERO_UUID, topic_id):
                    logger.error("%s: the log in %s belongs to another topic of that name", topic_partition, log.directory)
                    return ErrorCode.INCONSISTENT_TOPIC_ID
                log.update_high_watermark(self._log_manager.checkpointed_high_watermark(topic_partition))
                partition = Partition(self.broker_id, topic_partition, topic_id, log)
                self.partitions.setdefault(topic, {})[state.partition_index] = partition
            if state.leader == self.broker_id:
                partition.become_leader(state, self._clock.now_ms())
            else:
                partition.become_follower(state)
        except LogDirFailure as failure:
            self.on_log_dir_failure(failure.log_dir)
            self.offline.add(topic_partition)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    async def on_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """StopReplica (api 5): stop serving partitions and, where the request says so, delete their logs."""
        if request.controller_epoch < self.controller_epoch:
            logger.warning(
                "refused StopReplica of controller %d: its epoch %d is older than %d",
                request.controller_id, request.controller_epoch, self.controller_epoch,
            )  # fmt: skip
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        errors = []
        for topic_partition, leader_epoch, delete in _stopped_partitions(request):
            code = self._stop(topic_partition, leader_epoch, delete=delete)
            errors.append(
                StopReplicaPartitionError(topic_name=topic_partition.topic, partition_index=topic_partition.partition, error_code=code)
            )
            if len(errors) % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=errors)

    def _stop(self, topic_partition: TopicPartition, leader_epoch: int, *, delete: bool) -> ErrorCode:
        topic, index = topic_partition
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partition(topic, index)
        if partition is not None:
            if leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE) and leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            del self.partitions[topic][index]
            if not self.partitions[topic]:
                del self.partitions[topic]
            partition.resign()
        if delete:
            try:
                self._log_manager.delete(topic_partition)
            except LogDirFailure as failure:
                self.on_log_dir_failure(failure.log_dir)
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # -- disk and configuration ------------------------------------------------------------------------------------------

    def on_log_dir_failure(self, log_dir: str) -> None:
        """A directory failed: its partitions go offline here, the rest serves on."""
        failed = [partition for partition in self if partition.log.log_dir == log_dir]
        for partition in failed:
            topic, index = partition.topic_partition
            self.offline.add(partition.topic_partition)
            del self.partitions[topic][index]
            if not self.partitions[topic]:
                del self.partitions[topic]
            partition.resign()
        self._log_manager.handle_log_dir_failure(log_dir)

    def on_topic_config_change(self, topic: str) -> None:
        """The logs of a topic have a new configuration."""
        for partition in self.partitions.get(topic, {}).values():
            partition.on_config_change()

    def checkpoint_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint` in every live directory."""
        self._log_manager.checkpoint_high_watermarks()


def _states_by_topic(request: LeaderAndIsrRequest) -> Iterable[tuple[str, bytes, list[LeaderAndIsrPartitionState]]]:
    for topic in request.topic_states:
        yield topic.topic_name, topic.topic_id, topic.partition_states
    by_name: dict[str, list[LeaderAndIsrPartitionState]] = {}
    for state in request.ungrouped_partition_states:  # versions 0 and 1
        by_name.setdefault(state.topic_name, []).append(state)
    for name, states in by_name.items():
        yield name, ZERO_UUID, states


def _stopped_partitions(request: StopReplicaRequest) -> Iterable[tuple[TopicPartition, int, bool]]:
    """(partition, leader epoch, delete the log) of every version's form."""
    for topic_state in request.topic_states:
        for state in topic_state.partition_states:
            yield TopicPartition(topic_state.topic_name, state.partition_index), state.leader_epoch, state.delete_partition
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), NO_EPOCH, request.delete_partitions
    for ungrouped in request.ungrouped_partitions:
        yield TopicPartition(ungrouped.topic_name, ungrouped.partition_index), NO_EPOCH, request.delete_partitions
