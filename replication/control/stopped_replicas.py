"""Applies StopReplica, for `ReplicaManager`.

An earlier LeaderAndIsr may still be in progress, if its connection broke or this broker's session ended. It does not create again the logs
that are deleted meanwhile.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.control.controller_requests import EPOCH_DURING_DELETE, NO_EPOCH, StopReplicaAnswer, stopped_partitions
from ottla.replication.ports.thread_work import done
from ottla.storage.errors import LogDirFailure
from ottla.storage.upkeep.directory_renames import DirectoryRename

if TYPE_CHECKING:
    from ottla.replication.control.replica_manager import ReplicaManager


async def on_stop_replica(manager: ReplicaManager, request: StopReplicaRequest) -> StopReplicaResponse:
    """See `ReplicaManager.on_stop_replica`."""
    answer = StopReplicaAnswer()
    if manager.is_deposed(request):
        return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    deleted_in: set[str] = set()
    """Log directories with logs that are deleted."""
    for topic_partition, leader_epoch, delete in stopped_partitions(request):
        code, renames = _stop(manager, topic_partition, leader_epoch, delete=delete)
        answer.add(topic_partition, code, renames)
        deleted_in.update(rename.log.log_dir for rename in renames)
        if delete and not renames:
            # An earlier request may have begun to delete it, in any directory.
            deleted_in.update(directory.path for directory in manager.log_manager.directories.live)
        await pause()
        if manager.is_deposed(request):
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    if deleted_in:
        await done(partial(manager.log_manager.renames.when_done, deleted_in))
    return answer.response()


def _stop(
    manager: ReplicaManager, topic_partition: TopicPartition, leader_epoch: int, *, delete: bool
) -> tuple[ErrorCode, list[DirectoryRename]]:
    renames: list[DirectoryRename] = []
    if topic_partition in manager.offline:
        if not (manager.frees_names and leader_epoch == EPOCH_DURING_DELETE and delete):
            return ErrorCode.KAFKA_STORAGE_ERROR, renames
        del manager.offline[topic_partition]  # another topic may get the name before the directory is back
    partition = manager.partition(*topic_partition)
    if partition is not None:
        if leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE) and leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, renames
        manager.unfollow(topic_partition)
        manager.log_manager.moves.stop(topic_partition)
        if delete:
            manager.remove(partition)
        partition.notify_all()
    if delete:
        for answer in manager.answers:
            answer.deleted.add(topic_partition)
        try:
            renames = manager.log_manager.delete(topic_partition)
        except LogDirFailure as failure:
            manager.log_manager.report_failure(failure)
            return ErrorCode.KAFKA_STORAGE_ERROR, renames
    return ErrorCode.NONE, renames
