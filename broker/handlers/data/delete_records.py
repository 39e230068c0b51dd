"""Handles DeleteRecords (api 21), versions 0-2. KIP-107: raises the log start offset of partitions, at most to the high watermark (-1).

The answer is the low watermark, the lowest log start offset of all replicas. The request waits until every live replica has followed, or
until its timeout.
"""

from __future__ import annotations

from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.network.request_channel import Answer, Pending
from ottla.broker.request.context import RequestContext
from ottla.broker.request.large_requests import free
from ottla.coordination.appends.delayed_produce import DelayedPartitions
from ottla.coordination.internal_topics import INTERNAL_TOPICS
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.errors import ReplicationError
from ottla.replication.leader.partition import Partition
from ottla.replication.waiting.purgatory import Purgatory
from ottla.storage.errors import StorageError

UNKNOWN_LOW_WATERMARK = -1


class ShorterPartition:
    """One partition whose records before `offset` are deleted here. A waiter of the partition, until its followers have deleted them."""

    __slots__ = ("completed", "delayed", "offset", "partition", "result")

    def __init__(self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.offset = offset
        self.result = result
        self.completed = False
        self.delayed: DelayedDeleteRecords | None = None

    def try_complete(self) -> bool:
        """Complete when the followers have deleted the records, or this broker no longer leads the partition."""
        if self.completed:
            return True
        if not self.partition.is_leader:
            self.result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.result.low_watermark = UNKNOWN_LOW_WATERMARK
        else:
            self.result.low_watermark = self.partition.low_watermark
            if self.result.low_watermark < self.offset:
                return False
        self.completed = True
        if self.delayed is not None:
            self.delayed.on_decided()
        return True


async def handle_delete_records(request: DeleteRecordsRequest, context: RequestContext) -> Answer | DeleteRecordsResponse:
    """Delete on the leader, then wait for the followers."""
    shorter: list[ShorterPartition] = context.scratch([])
    # If a partition is named twice, its last offset counts.
    wanted: dict[tuple[str, int], int] = context.scratch({})
    for topic in request.topics:
        for asked in topic.partitions:
            wanted[topic.name, asked.partition_index] = asked.offset
            await pause()
        await pause()
    results: dict[str, list[DeleteRecordsPartitionResult]] = context.scratch({})
    may_delete: dict[str, bool] = context.scratch({})
    for (name, index), wanted_offset in wanted.items():
        await pause()
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN_LOW_WATERMARK)
        results.setdefault(name, []).append(result)
        if name not in may_delete:
            may_delete[name] = context.is_authorized(Operation.DELETE, ResourceType.TOPIC, name)
        if not may_delete[name]:
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        if name in INTERNAL_TOPICS and context.broker.metadata.partition(name, index) is not None:
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            continue
        try:
            partition = context.broker.data.replica_manager.partition_or_raise(name, index)
            shorter.append(ShorterPartition(partition, partition.delete_records(wanted_offset), result))
        except (StorageError, ReplicationError) as error:
            result.error_code = partition_error(error, context.broker.data)
    response = DeleteRecordsResponse(
        topics=(await each(results.items(), lambda named: DeleteRecordsTopicResult(name=named[0], partitions=named[1])))
    )
    waiting = []
    for entry in shorter:
        if not entry.try_complete():
            waiting.append(entry)
        await pause()
    if not waiting:
        return response
    pending = Pending()
    delayed = DelayedDeleteRecords(waiting, response, context, pending)
    await delayed.begin(context.broker.data.delete_records_purgatory, request.timeout_ms)
    return pending


class DelayedDeleteRecords(DelayedPartitions):
    """A DeleteRecords that waits for some of its partitions."""

    __slots__ = ("_context", "_pending", "_response", "_waiting")

    def __init__(self, waiting: list[ShorterPartition], response: DeleteRecordsResponse, context: RequestContext, pending: Pending) -> None:
        super().__init__(len(waiting))
        self._waiting = waiting
        self._response = response
        self._context = context
        self._pending = pending

    async def begin(self, purgatory: Purgatory, timeout_ms: int) -> None:
        """Let the partitions wait, for `timeout_ms`; partitions may be decided meanwhile."""
        for entry in self._waiting:
            entry.delayed = self
            self.let_wait(entry, purgatory)
            await pause()
        self.wait(purgatory, timeout_ms)

    def on_expiration(self) -> None:
        """Answer REQUEST_TIMED_OUT for partitions whose followers were too slow."""
        for entry in self._waiting:
            if not entry.completed:
                entry.completed = True  # so that it leaves the list of its partition
                entry.result.error_code = ErrorCode.REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        """Answer, with pauses if the answer is large."""
        self._context.broker.running.begin(self._answer(), self._pending)

    async def _answer(self) -> Pending:
        self._pending.complete(await self._context.encode_in_slices(self._response))
        # The queue of its timeout may keep the operation for long.
        while self._waiting:
            self._waiting.pop()
            await pause()
        await free(self._response)
        return self._pending
