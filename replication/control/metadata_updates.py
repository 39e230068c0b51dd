"""Applies UpdateMetadata and its consequences for the replicas of this broker, for `ReplicaManager`.

A request may have ten thousand partitions. They are applied with pauses. Clients see the old metadata until
the new one is complete. One request at a time is applied, in the order of arrival. A request of a newer controller meanwhile ends the
application of the older one, which then has changed nothing.

Replicas may have been moved to other brokers while this one was suspended. StopReplica was sent only to live brokers. So this broker
would stay leader in its old leader epoch, until a client asks for a later one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.cluster import TopicImage

if TYPE_CHECKING:
    from ottla.replication.control.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


async def on_update_metadata(manager: ReplicaManager, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """See `ReplicaManager.on_update_metadata`."""
    deposed = UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    if manager.is_deposed(request):
        return deposed
    async with manager.metadata_changes:
        moved: list[tuple[Partition, int]] = []
        for name, topic_id, state in _states(request):
            if (partition := _moved_away(manager, name, topic_id, state)) is not None:
                moved.append((partition, state.leader_epoch))
            await pause()
        if manager.is_deposed(request):
            return deposed
        update = manager.cluster.begin_update(request)
        for _ in update:
            await pause()
            if manager.is_deposed(request):  # there may be a newer controller meanwhile
                return deposed
        deleted = update.complete()
        if deleted:
            await manager.on_partitions_deleted(deleted)
        for partition, leader_epoch in moved:
            if manager.partition(*partition.topic_partition) is partition and partition.leader_epoch < leader_epoch:
                logger.warning("%s: was moved to other brokers; no longer served, the log stays", partition.topic_partition)
                manager.remove(partition)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)


async def forget_topics(manager: ReplicaManager, images: Iterable[TopicImage]) -> list[TopicImage]:
    """See `ReplicaManager.forget_topics`."""
    async with manager.metadata_changes:
        gone = [image for image in images if manager.cluster.topics.get(image.name) is image]
        if gone:
            await manager.on_partitions_deleted(manager.cluster.forget(gone))
    return gone


def _moved_away(manager: ReplicaManager, name: str, topic_id: bytes, state: UpdateMetadataPartitionState) -> Partition | None:
    """The partition, if it left this broker in a later leader epoch than it knows."""
    if manager.broker_id in state.replicas:
        return None
    partition = manager.partition(name, state.partition_index)
    if partition is None or state.leader_epoch <= partition.leader_epoch or not _is_meant(partition, topic_id):
        return None
    return partition


def _is_meant(partition: Partition, topic_id: bytes) -> bool:
    return topic_id in (ZERO_UUID, partition.topic_id) or partition.topic_id == ZERO_UUID


def _states(request: UpdateMetadataRequest) -> Iterator[tuple[str, bytes, UpdateMetadataPartitionState]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state
    for state in request.ungrouped_partition_states:  # versions 0 to 4
        yield state.topic_name, ZERO_UUID, state
