"""Applies UpdateMetadata and its consequences for the replicas of this broker, for `ReplicaManager`.

A request may have ten thousand partitions. They are applied with pauses. Clients see the old metadata until
the new one is complete. One request at a time is applied, in the order of arrival. A request of a newer controller meanwhile ends the
application of the older one, which then has changed nothing.

Replicas may have been moved to other brokers while this one was suspended, and topics may have been deleted. StopReplica was sent only to
live brokers. So this broker would stay leader in its old leader epoch, until a client asks for a later one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.former_topics import forget_offline, is_same_topic
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
        left: list[tuple[Partition, bytes, UpdateMetadataPartitionState]] = []
        for name, topic_id, state in _states(request):
            if manager.offline and manager.frees_names:
                forget_offline(manager, TopicPartition(name, state.partition_index), topic_id)
            partition = manager.partition(name, state.partition_index)
            if partition is not None and _has_left(manager, partition, topic_id, state):
                left.append((partition, topic_id, state))
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
            await manager.notify_deleted(deleted, is_reported=True)
        for partition, topic_id, state in left:
            if manager.partition(*partition.topic_partition) is partition and _has_left(manager, partition, topic_id, state):
                logger.warning("%s: is on other brokers now; no longer served, the log stays", partition.topic_partition)
                manager.remove(partition)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)


async def forget_topics(manager: ReplicaManager, images: Iterable[TopicImage]) -> list[TopicImage]:
    """See `ReplicaManager.forget_topics`."""
    async with manager.metadata_changes:
        gone = [image for image in images if manager.cluster.topics.get(image.name) is image]
        if gone:
            await manager.notify_deleted(manager.cluster.forget(gone), is_reported=False)
        for image in gone:
            for partition in list(manager.partitions.get(image.name, {}).values()):
                logger.warning("%s: its topic was deleted; no longer served, the log stays", partition.topic_partition)
                manager.remove(partition)
                await pause()
        if manager.frees_names:
            names = {image.name for image in gone}
            for topic_partition in [each for each in manager.offline if each.topic in names]:
                del manager.offline[topic_partition]
    return gone


def _has_left(manager: ReplicaManager, partition: Partition, topic_id: bytes, state: UpdateMetadataPartitionState) -> bool:
    """Whether the partition left this broker in a later leader epoch than it knows, or belongs to a deleted topic of that name."""
    if manager.broker_id in state.replicas:
        return False
    return state.leader_epoch > partition.leader_epoch if is_same_topic(partition.topic_id, topic_id) else manager.frees_names


def _states(request: UpdateMetadataRequest) -> Iterator[tuple[str, bytes, UpdateMetadataPartitionState]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state
    for state in request.ungrouped_partition_states:  # versions 0 to 4
        yield state.topic_name, ZERO_UUID, state
