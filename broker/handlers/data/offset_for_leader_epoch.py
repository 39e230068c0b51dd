"""Handles OffsetForLeaderEpoch (api 23), versions 0-4. KIP-101, KIP-279, KIP-320.

Finds the end of a leader epoch in this leader's log, so that a follower or a consumer can find the offset up to which its own log agrees.
Versions below 3 have no replica id, and are for followers. Brokers need the right CLUSTER_ACTION, consumers the right to describe the topic
(KIP-320).
"""

from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.request.context import RequestContext
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.replication.errors import ReplicationError
from ottla.storage.errors import StorageError


async def handle_offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    """Find the end offset of each requested epoch; -1 when this log does not know the epoch."""
    replicas = context.broker.data.replica_manager
    is_broker = context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, log_if_denied=False)
    topics = []
    refused = []
    for topic in request.topics:
        await pause()
        if not is_broker and not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic):
            results = await each(topic.partitions, lambda asked: _no_offset(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            refused.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
            continue
        results = []
        for asked in topic.partitions:
            result = _no_offset(asked, ErrorCode.NONE)
            results.append(result)
            try:
                partition = replicas.partition_or_raise(topic.topic, asked.partition)
                log = partition.check_leader(asked.current_leader_epoch)
                result.leader_epoch, result.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
            except (StorageError, ReplicationError) as error:
                result.error_code = partition_error(error, context.broker.data)
            await pause()
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
    return OffsetForLeaderEpochResponse(topics=topics + refused)


def _no_offset(asked: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=asked.partition, error_code=code, leader_epoch=-1, end_offset=-1)
