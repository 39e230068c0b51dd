"""Handles AlterReplicaLogDirs (api 34), versions 0-2. KIP-113: moves replicas between the log directories of this broker.

The answer does not wait for the move; DescribeLogDirs shows its progress. For a replica that this broker does not host yet, the answer is
REPLICA_NOT_AVAILABLE, and the replica is later created in the requested directory, as by Apache Kafka.
"""

import logging

from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.request.context import RequestContext
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.errors import NotLeaderOrFollower, ReplicationError
from ottla.storage.errors import StorageError

logger = logging.getLogger(__name__)


async def handle_alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    """Begin each move independently of the others. If a partition is named twice, its last directory counts."""
    wanted: dict[TopicPartition, str] = context.scratch({})
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                await pause()
                wanted[TopicPartition(topic.name, index)] = directory.path
    is_allowed = context.is_authorized(Operation.ALTER, ResourceType.CLUSTER)
    outcome = await context.broker.data.replica_manager.alter_log_dirs(wanted) if is_allowed else {}
    context.scratch(outcome)
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = context.scratch({})
    failed: list[str] = context.scratch([])
    for topic_partition, path in wanted.items():
        await pause()
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if is_allowed:
            error = outcome[topic_partition]
            code = _code(error, context)
            if error is not None and not isinstance(error, NotLeaderOrFollower):
                failed.append(f"{topic_partition} cannot be moved to {path}: {error}")
        result = AlterReplicaLogDirPartitionResult(partition_index=topic_partition.partition, error_code=code)
        results.setdefault(topic_partition.topic, []).append(result)
    if failed:
        more = f" (and {len(failed) - 1} others)" if len(failed) > 1 else ""
        logger.warning("%s%s", failed[0], more)
    return AlterReplicaLogDirsResponse(
        results=await each(results.items(), lambda named: AlterReplicaLogDirTopicResult(topic_name=named[0], partitions=named[1]))
    )


def _code(error: ReplicationError | StorageError | None, context: RequestContext) -> ErrorCode:
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, NotLeaderOrFollower):
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return partition_error(error, context.broker.data)
