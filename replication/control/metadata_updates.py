"""UpdateMetadata, and what follows from it for the replicas here: methods of `ReplicaManager`, kept in a file of their own.

A request may name ten thousand partitions. They are taken in some per turn of the event loop; what clients see is the old picture until
the new one is whole. One request at a time, in the order in which they came; a newer controller that speaks meanwhile ends the older
one's, which has changed nothing then.

Replicas may have been moved to other brokers while this one stood still. StopReplica went to those who were alive: such a broker would lead
on in its old leader epoch until somebody asks it for a later one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataResponse
from protocol.uuid import ZERO_UUID
from replication.leader.partition import Partition
from replication.ports.cluster import TopicImage

if TYPE_CHECKING:
    from replication.control.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

STATES_PER_TURN = 1000
"""Of which each is looked at for a fraction of a microsecond."""


async def on_update_metadata(self: ReplicaManager, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """UpdateMetadata (api 6): take in what is new about the cluster."""
    deposed = UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    if self.is_deposed(request):
        return deposed
    async with self.metadata_changes:
        moved: list[tuple[Partition, int]] = []
        states = _states(request)
        while some := list(islice(states, STATES_PER_TURN)):
            moved += _moved_away(self, some)
            if len(some) == STATES_PER_TURN:
                await asyncio.sleep(0)
        if self.is_deposed(request):
            return deposed
        steps = self.cluster.update_steps(request)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                deleted = end.value
                break
            await asyncio.sleep(0)
            if self.is_deposed(request):  # a new controller may have spoken meanwhile
                return deposed
        if deleted:
            self.on_partitions_deleted(deleted)
        for partition, leader_epoch in moved:
            if self.partition(*partition.topic_partition) is partition and partition.leader_epoch < leader_epoch:
                logger.warning("%s: moved to other brokers meanwhile; not served any more, the log stays", partition.topic_partition)
                self.remove(partition)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)


async def forget_topics(self: ReplicaManager, images: Iterable[TopicImage]) -> list[TopicImage]:
    """These topics are deleted, which no controller said. Those of which something was heard meanwhile stay; returns the others."""
    async with self.metadata_changes:
        gone = [image for image in images if self.cluster.topics.get(image.name) is image]
        if gone:
            self.on_partitions_deleted(self.cluster.forget(gone))
    return gone


def _moved_away(self: ReplicaManager, states: Iterable[tuple[str, bytes, UpdateMetadataPartitionState]]) -> list[tuple[Partition, int]]:
    """Those that are this broker's no more since a later leader epoch than the one it knows, and that epoch."""
    found = []
    broker_id = self.broker_id
    for name, topic_id, state in states:
        if broker_id not in state.replicas:
            partition = self.partition(name, state.partition_index)
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
