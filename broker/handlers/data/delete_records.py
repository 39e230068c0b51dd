"""Handles DeleteRecords (api 21), versions 0-2. KIP-107: raises the log start offset of partitions, at most to the high watermark (-1).

The answer is the low watermark, the lowest log start offset of all replicas. The request waits until every live replica has followed, or
until its timeout.
"""

from __future__ import annotations

from broker.handlers.data.partition_errors import partition_error
from broker.loop.purgatory import DelayedOperation
from broker.network.request_channel import Answer, Pending
from broker.request.context import RequestContext
from broker.request.internal_topics import INTERNAL_TOPICS
from broker.request.turns import Steps, each
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from replication.errors import ReplicationError
from replication.leader.partition import Partition
from storage.errors import StorageError

UNKNOWN_LOW_WATERMARK = -1


def handle_delete_records(request: DeleteRecordsRequest, context: RequestContext) -> Steps[Answer | DeleteRecordsResponse]:
    """Delete on the leader, then wait for the followers."""
    waiting: list[tuple[Partition, int, DeleteRecordsPartitionResult]] = []
    # If a partition is named twice, its last offset counts.
    wanted: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            wanted[topic.name, asked.partition_index] = asked.offset
            yield
    results: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for (name, index), wanted_offset in wanted.items():
        yield
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN_LOW_WATERMARK)
        results.setdefault(name, []).append(result)
        if not context.is_authorized(Operation.DELETE, ResourceType.TOPIC, name):
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        if name in INTERNAL_TOPICS and context.broker.metadata.partition(name, index) is not None:
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            continue
        try:
            partition = context.broker.data.replica_manager.partition_or_raise(name, index)
            offset = partition.delete_records(wanted_offset)
            waiting.append((partition, offset, result))
        except (StorageError, ReplicationError) as error:
            result.error_code = partition_error(error, context.broker.data)
    response = DeleteRecordsResponse(
        topics=(yield from each(results.items(), lambda named: DeleteRecordsTopicResult(name=named[0], partitions=named[1])))
    )
    for entry in waiting:
        if not _is_decided(*entry):
            break
        yield
    else:
        return response
    pending = Pending()
    delayed = DelayedDeleteRecords(waiting, response, context, pending)
    context.broker.data.delete_records_purgatory.try_complete_else_watch(
        delayed, [partition.waiters for partition, _, _ in waiting], request.timeout_ms
    )
    return pending


class DelayedDeleteRecords(DelayedOperation):
    """Waits until the log start offsets of all replicas have reached the requested ones."""

    __slots__ = ("_context", "_pending", "_response", "_waiting")

    def __init__(
        self,
        waiting: list[tuple[Partition, int, DeleteRecordsPartitionResult]],
        response: DeleteRecordsResponse,
        context: RequestContext,
        pending: Pending,
    ) -> None:
        super().__init__()
        self._waiting = waiting
        self._response = response
        self._context = context
        self._pending = pending

    def try_complete(self) -> bool:
        """Complete when no partition is left to wait for."""
        self._waiting = [entry for entry in self._waiting if not _is_decided(*entry)]
        return not self._waiting and self.force_complete()

    def on_expiration(self) -> None:
        """Answer REQUEST_TIMED_OUT for partitions whose followers were too slow."""
        for _, _, result in self._waiting:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        """Answer."""
        self._pending.complete(self._context.encode(self._response))


def _is_decided(partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> bool:
    if not partition.is_leader:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return True
    result.low_watermark = partition.low_watermark
    return result.low_watermark >= offset
