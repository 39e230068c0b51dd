"""Handles ListOffsets (api 2), versions 0-11.

Timestamps from 1 (KIP-79), isolation level from 2, leader epochs from 4 (KIP-320), the offset of the largest timestamp from 7 (KIP-734),
earliest local (-4) from 8, latest tiered (-5) from 9 (KIP-405, KIP-1005), and the earliest that is not tiered yet (-6) from 11
(KIP-1023). Without remote storage, the earliest local offset is the log start offset, and the last two are unknown. Searches by time in
remote segments run beside other requests (`remote_offsets`). Apache Kafka looks for the largest timestamp at local segments only.
Version 0 answers with a list of segment base offsets, latest first, instead of one offset.

Deviation: version 0 uses the largest timestamp of each segment; Apache Kafka uses the modification time of its file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from ottla.broker.handlers.data.cold_reads import until_cached
from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.handlers.data.remote_offsets import RemoteLookUp, find_for_timestamp, find_of_max_timestamp
from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.replication.errors import OffsetNotAvailable, ReplicationError
from ottla.replication.leader.partition import Partition
from ottla.replication.reading.asked_partition import CONSUMER, DEBUGGING_CONSUMER
from ottla.replication.reading.fetch_read import FetchParams
from ottla.storage.errors import StorageError, UnsupportedForMessageFormat
from ottla.storage.log.lookups import begins_up_to, offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.reads import OffsetAndTimestamp
from ottla.storage.remote.chunk_loads import TooManyReads
from ottla.storage.remote.ports import MetadataNotReady, RemoteStoreError
from ottla.storage.segment.cold_lookups import ColdRead
from ottla.storage.segment.record_search import FoundRecords

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION_OF = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
FUTURE_VERSION = 99
UNKNOWN_OFFSET = -1
FIRST_VERSION_WITH_LEADER_EPOCH = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
REMOTE_AT_ONCE = 10
"""Partitions of a request whose remote segments are searched at once."""


class _Cold(NamedTuple):
    """A partition whose look-up has to wait for the disk, and the place of its answer."""

    answers: list[ListOffsetsPartitionResponse]
    place: int
    topic: str
    asked: ListOffsetsPartition
    reason: ColdRead | RemoteLookUp


async def handle_list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Find offsets by time: at once, unless that needs large batches, or old segments that are not in the page cache."""
    found: FoundRecords = {}
    cold: list[_Cold] = []
    response = await _list(request, context, found, cold)
    return await _look_up(cold, request, context, found, response) if cold else response


async def _list(request: ListOffsetsRequest, context: RequestContext, found: FoundRecords, cold: list[_Cold]) -> ListOffsetsResponse:
    """Find the offset of each partition that can be found now; the others are added to `cold`.

    A partition named twice is an error from version 1, since its two results would look the same. The result of version 0 may have an
    offset for each segment. `found` has the results of searches in threads.
    """
    times: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = topic.name, partition.partition_index
            times[key] = times.get(key, 0) + 1
            await pause()
        await pause()
    topics = []
    refused = []
    repeats = Repeats(context)
    for topic in request.topics:
        await pause()
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            refused.append(await _refused(topic))
            continue
        answers: list[ListOffsetsPartitionResponse] = []
        for partition in topic.partitions:
            key = topic.name, partition.partition_index
            if times[key] > 1 and (context.api_version > 0 or repeats.are_too_many(key)):
                answer = _failed(partition, ErrorCode.INVALID_REQUEST)
            else:
                try:
                    answer = _list_one(topic.name, partition, request, context, False, found)
                except (ColdRead, RemoteLookUp) as reason:
                    answer = _failed(partition, ErrorCode.NONE)
                    cold.append(_Cold(answers, len(answers), topic.name, partition, reason))
            answers.append(answer)
            await pause()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics + refused)


async def _look_up(
    cold: list[_Cold], request: ListOffsetsRequest, context: RequestContext, found: FoundRecords, response: ListOffsetsResponse
) -> ListOffsetsResponse:
    """Complete the response with the partitions that wait for the disk, one after the other, and for the remote store."""
    remote = []
    for answers, place, topic, asked, reason in cold:
        if isinstance(reason, RemoteLookUp):
            remote.append(_look_up_remote(answers, place, topic, asked, request, context, reason.partition))
            continue

        async def read(may_wait: bool, topic: str = topic, asked: ListOffsetsPartition = asked) -> ListOffsetsPartitionResponse:
            await pause()
            return _list_one(topic, asked, request, context, may_wait, None if may_wait else found)

        try:
            answers[place] = await until_cached(context.broker, reason, read)
        except RemoteLookUp as late:
            remote.append(_look_up_remote(answers, place, topic, asked, request, context, late.partition))
    if remote:
        context.broker.administration.metadata_waits.on_wait()
        slots = asyncio.Semaphore(REMOTE_AT_ONCE)
        await asyncio.gather(*(_in_slot(slots, search) for search in remote))
    return response


async def _in_slot(slots: asyncio.Semaphore, search: Coroutine[Any, Any, None]) -> None:
    async with slots:
        await search


async def _look_up_remote(
    answers: list[ListOffsetsPartitionResponse],
    place: int,
    topic: str,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
    partition: Partition,
) -> None:
    """Complete the answer of a partition of which a part is in the remote store only."""
    broker, log = context.broker, partition.log
    assert broker.remote is not None  # otherwise only local segments are searched
    reads = broker.remote.reads
    searched: FoundRecords = {}
    try:
        if asked.timestamp == MAX_TIMESTAMP:
            found = await find_of_max_timestamp(broker, reads, log, searched)
        else:
            found = await find_for_timestamp(broker, reads, log, asked.timestamp, searched)
    except (TimeoutError, TooManyReads, MetadataNotReady):
        answers[place] = _failed(asked, ErrorCode.REPLICA_NOT_AVAILABLE)
    except RemoteStoreError as error:
        reads.report(log, error)
        answers[place] = _failed(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    except (StorageError, ReplicationError) as error:
        answers[place] = _failed(asked, partition_error(error, broker.data))
    else:
        answers[place] = _list_one(topic, asked, request, context, True, None, (found,))


def _failed(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=code, timestamp=-1, offset=UNKNOWN_OFFSET, leader_epoch=-1
    )


async def _refused(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    """The result for a topic that the client may not describe."""
    partitions = await each(topic.partitions, lambda asked: _failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return ListOffsetsTopicResponse(name=topic.name, partitions=partitions)


def _list_one(
    topic: str,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
    may_wait: bool,
    searched: FoundRecords | None,
    known: tuple[OffsetAndTimestamp | None] | None = None,
) -> ListOffsetsPartitionResponse:
    """The answer for one partition. `known` is the result of a search by time that was completed before."""
    answer = _failed(asked, ErrorCode.NONE)
    version = context.api_version
    timestamp = asked.timestamp
    if timestamp < 0 and version < FIRST_VERSION_OF.get(timestamp, FUTURE_VERSION):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    params = FetchParams(request.replica_id, request.isolation_level, or_follower=request.replica_id == DEBUGGING_CONSUMER)
    try:
        partition = context.broker.data.replica_manager.partition_or_raise(topic, asked.partition_index)
        log = partition.check_leader(asked.current_leader_epoch, or_follower=params.or_follower)
        end_offset = params.end_offset(partition)
        if version == 0:
            answer.old_style_offsets = _old_style_offsets(log, asked, end_offset, context.broker.clock.now_ms(), may_wait=may_wait)
            return answer
        if known is not None:
            found = _visible(known[0], end_offset)
        else:
            found = _find(partition, timestamp, end_offset, may_wait, searched, context.broker.remote is not None)
        if request.replica_id == CONSUMER and (found is None or timestamp == LATEST):
            partition.check_offset_is_available()
        if found is not None:
            answer.timestamp, answer.offset, answer.leader_epoch = found
        if version < FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = -1
    except OffsetNotAvailable:
        answer.error_code = (
            ErrorCode.OFFSET_NOT_AVAILABLE if version >= FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE else ErrorCode.LEADER_NOT_AVAILABLE
        )
    except (StorageError, ReplicationError) as error:
        answer.error_code = partition_error(error, context.broker.data)
    return answer


def _find(
    partition: Partition, timestamp: int, end_offset: int, may_wait: bool, searched: FoundRecords | None, reads_remote: bool
) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) for a requested timestamp; None when there is no such record below `end_offset`.

    Raises RemoteLookUp when remote segments have to be searched, too.
    """
    log = partition.log
    if timestamp == LATEST:
        return -1, end_offset, partition.leader_epoch
    if timestamp == EARLIEST:
        return _at(log, log.log_start_offset)
    if timestamp == EARLIEST_LOCAL:
        return _at(log, log.local_log_start_offset)
    if not log.rules.magic:
        raise UnsupportedForMessageFormat(log.topic_partition, "timestamps are", log.rules.magic)
    if timestamp == LATEST_TIERED:
        return _at(log, UNKNOWN_OFFSET if log.tier is None else log.tier.copied.offset)
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return _at(log, UNKNOWN_OFFSET if log.tier is None else max(log.tier.copied.offset + 1, log.log_start_offset))
    if reads_remote and log.log_start_offset < log.local_log_start_offset:
        raise RemoteLookUp(partition)
    if timestamp == MAX_TIMESTAMP:
        found = offset_of_max_timestamp(log, may_wait, searched)
    else:
        found = offset_for_timestamp(log, timestamp, may_wait, searched)
    return _visible(found, end_offset)


def _visible(found: OffsetAndTimestamp | None, end_offset: int) -> tuple[int, int, int] | None:
    if found is None or found.offset >= end_offset:
        return None
    return found.timestamp, found.offset, found.leader_epoch


def _at(log: PartitionLog, offset: int) -> tuple[int, int, int]:
    """The answer with an offset and its leader epoch, which is -1 if it is unknown."""
    epoch = None if offset == UNKNOWN_OFFSET else log.leader_epochs.epoch_of(offset)
    return -1, offset, -1 if epoch is None else epoch


def _old_style_offsets(log: PartitionLog, asked: ListOffsetsPartition, end_offset: int, now_ms: int, *, may_wait: bool) -> list[int]:
    """Version 0: up to `max_num_offsets` offsets from which a consumer can read records older than the timestamp."""
    if asked.timestamp == EARLIEST:
        offsets = [log.log_start_offset]
    elif asked.timestamp == LATEST:
        offsets = [max(base_offset, log.log_start_offset) for base_offset in log.segments.bases]
    else:
        offsets = begins_up_to(log, asked.timestamp, may_wait)
    if (asked.timestamp == LATEST or asked.timestamp >= now_ms) and log.segments.active.size:
        offsets.append(log.log_end_offset)
    visible = sorted({min(offset, end_offset) for offset in offsets}, reverse=True)
    return visible[: max(asked.max_num_offsets, 0)]
