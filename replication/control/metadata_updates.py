"""Applies UpdateMetadata and its consequences for the replicas of this broker, for `ReplicaManager`.

A request may have ten thousand partitions. They are applied in parts, one per turn of the event loop. Clients see the old metadata until
the new one is complete. One request at a time is applied, in the order of arrival. A request of a newer controller meanwhile ends the
application of the older one, which then has changed nothing.

Replicas may have been moved to other brokers while this one was suspended. StopReplica was sent only to live brokers. So this broker
would stay leader in its old leader epoch, until a client asks for a later one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.cluster import TopicImage

if TYPE_CHECKING:
    from ottla.replication.control.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

STATES_PER_TURN = 1000
"""Partitions examined per turn of the event loop, a fraction of a microsecond each."""


async def on_update_metadata(manager: ReplicaManager, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """See `ReplicaManager.on_update_metadata`."""
    deposed = UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    if manager.is_deposed(request):
        return deposed
    async with manager.metadata_changes:
        moved: list[tuple[Partition, int]] = []
        states = _states(request)
        while some := list(islice(states, STATES_PER_TURN)):
            moved += _moved_away(manager, some)
            if len(some) == STATES_PER_TURN:
                await asyncio.sleep(0)
        if manager.is_deposed(request):
            return deposed
        steps = manager.cluster.update_steps(request)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                deleted = end.value
                break
            await asyncio.sleep(0)
            if manager.is_deposed(request):  # there may be a newer controller meanwhile
                return deposed
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


def _moved_away(manager: ReplicaManager, states: Iterable[tuple[str, bytes, UpdateMetadataPartitionState]]) -> list[tuple[Partition, int]]:
    """The partitions that left this broker in a later leader epoch than it knows, with that epoch."""
    found = []
    broker_id = manager.broker_id
    for name, topic_id, state in states:
        if broker_id not in state.replicas:
            partition = manager.partition(name, state.partition_index)
            if partition is not None and state.leader_epoch > partition.leader_epoch and _is_meant(partition, topic_id):
                found.append((partition, state.leader_epoch))
    return found


def _is_meant(partition: Partition, topic_id: bytes) -> bool:
    return topic_id in (ZERO_UUID, partition.topic_id) or partition.topic_id == ZERO_UUID


def _states(request: UpdateMetadataRequest) -> Iterator[tuple[str, bytes, UpdateMetadataPartitionState]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state
    for state in request.ungrouped_partition_states:  # versions 0 to 4
        yield state.topic_name, ZERO_UUID, state
