"""AlterReplicaLogDirs (api 34), versions 0-2 (KIP-113): move replicas between the log directories of this broker.

The answer does not wait for the move; DescribeLogDirs shows how far it is. A replica that this broker does not host is created in the
directory asked for when it comes, and answered with REPLICA_NOT_AVAILABLE meanwhile, as Apache Kafka does.
"""

import asyncio
import logging

from broker.handlers.partition_errors import partition_error
from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from replication.errors import NotLeaderOrFollower, ReplicationError
from storage.errors import StorageError
from storage.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


async def handle_alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    """Begin each move by itself. A partition that is named twice goes where it was named last."""
    wanted = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    is_allowed = context.is_authorized(Operation.ALTER, ResourceType.CLUSTER)
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for topic_partition, path in wanted.items():
        code = _alter(topic_partition, path, context) if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await asyncio.sleep(0)  # each may make a log
        result = AlterReplicaLogDirPartitionResult(partition_index=topic_partition.partition, error_code=code)
        results.setdefault(topic_partition.topic, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions) for name, partitions in results.items()]
    )


def _alter(topic_partition: TopicPartition, path: str, context: RequestContext) -> ErrorCode:
    try:
        context.broker.replica_manager.alter_log_dir(topic_partition, path)
    except NotLeaderOrFollower:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    except (ReplicationError, StorageError) as error:
        logger.warning("%s cannot be moved to %s: %s", topic_partition, path, error)
        return partition_error(error, context.broker)
    return ErrorCode.NONE
