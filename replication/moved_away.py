"""Replicas that were moved to other brokers while this one stood still. For the replica manager.

StopReplica went to those who were alive. Such a broker would lead on in its old leader epoch until somebody asks it for a later one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from protocol.uuid import ZERO_UUID
from replication.partition import Partition

logger = logging.getLogger(__name__)


def moved_away(request: UpdateMetadataRequest, broker_id: int, hosted: Callable[[str, int], Partition | None]) -> list[Partition]:
    """Those of which UpdateMetadata says that they are this broker's no more since a later leader epoch than the one it knows."""
    found = []
    for name, topic_id, state in _states(request):
        if broker_id not in state.replicas:
            partition = hosted(name, state.partition_index)
            if partition is not None and state.leader_epoch > partition.leader_epoch and _is_meant(partition, topic_id):
                replicas = state.replicas
                logger.warning("%s: moved to brokers %s meanwhile; not served any more, the log stays", partition.topic_partition, replicas)
                found.append(partition)
    return found


def _is_meant(partition: Partition, topic_id: bytes) -> bool:
    return topic_id in (ZERO_UUID, partition.topic_id) or partition.topic_id == ZERO_UUID


def _states(request: UpdateMetadataRequest) -> Iterable[tuple[str, bytes, UpdateMetadataPartitionState]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state
    for state in request.ungrouped_partition_states:  # versions 0 to 4
        yield state.topic_name, ZERO_UUID, state
