"""Handles DescribeLogDirs (api 35), versions 0-5: KIP-113; an error for the whole answer from 3, space from 4 (KIP-827), from 5
whether a directory takes no new partitions (KIP-1066), which is never so here.

The lag is -1 for a log whose partition this broker does not host yet, because the controller has not assigned it.

Deviation: directories are in the order of log.dirs. Queries for the space of file systems block for microseconds.
"""

from collections.abc import Collection, Sequence

from ottla.broker.request.context import RequestContext
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.storage.manager.log_dirs_description import UNKNOWN_LAG, LogDirDescription


async def handle_describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Describe each log directory with the requested partitions in it, or with all."""
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None if request.topics is None else context.scratch(await _asked_for(request.topics))
    found = context.broker.data.log_manager.describe_log_dirs()
    replicas = context.broker.data.replica_manager
    return DescribeLogDirsResponse(results=[await _result(each, wanted, replicas) for each in found])


async def _asked_for(topics: Sequence[DescribableLogDirTopic]) -> dict[tuple[str, int], None]:
    asked: dict[tuple[str, int], None] = {}
    for topic in topics:
        for partition in topic.partitions:
            asked[topic.topic, partition] = None
            await pause()
    return asked


async def _result(found: LogDirDescription, wanted: Collection[tuple[str, int]] | None, replicas: ReplicaManager) -> DescribeLogDirsResult:
    if not found.is_live:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=found.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for replica in found.replicas:
        await pause()
        topic, index = replica.topic_partition
        if wanted is None or (topic, index) in wanted:
            topics.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=replica.size_bytes,
                    offset_lag=UNKNOWN_LAG if replicas.partition(topic, index) is None else replica.offset_lag,
                    is_future_key=replica.is_future,
                )
            )
    return DescribeLogDirsResult(
        log_dir=found.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=found.total_bytes,
        usable_bytes=found.usable_bytes,
    )
